"""Statistics of tensors, on a CPU or an accelerator, and the names of layers and stats."""
