"""How a run is set up: the arguments of `attach`, its options, and the environment."""
