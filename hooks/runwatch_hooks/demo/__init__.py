"""A small training that can be broken on purpose: the trainer of `runwatch demo`.

Run it by itself with `python -m runwatch_hooks.demo --help`.
"""
