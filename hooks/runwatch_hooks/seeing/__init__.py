"""Where a training step is seen: its optimizers, its layers, and the moments to read them at."""
