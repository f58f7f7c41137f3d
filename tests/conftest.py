"""What holds for every test."""

import os

from hypothesis import settings

# A slow machine is no fault: no test asserts a time. In CI the examples are the same each time:
# it judges the change, not the dice; at a desk new ones are thrown.
settings.register_profile("runwatch", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("runwatch")

# Whoever runs the tests may have a service of their own in the environment.
for name in [name for name in os.environ if name.startswith("RUNWATCH_")]:
    del os.environ[name]
