"""Statistics of tensors, on a CPU and on an accelerator."""
