"""What trainers measured: taken in, kept, summed up and read back."""
