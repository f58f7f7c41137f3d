"""How a run ends: with its block, its program or its thread, or because another run follows."""
