"""What a tensor tells: its statistics, read on a CPU or an accelerator, and how they are named."""
