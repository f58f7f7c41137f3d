"""The rules that judge runs: the built-in pack, and the rules that people add to it."""
