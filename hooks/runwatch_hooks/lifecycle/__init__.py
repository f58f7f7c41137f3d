"""How a run ends: by its block, its program, its thread, or another run in its place."""
