"""How a step of the training is followed: the hooks into torch, what is read, and its row."""
