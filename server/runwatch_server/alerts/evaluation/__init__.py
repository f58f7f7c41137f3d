"""Evaluates the frames of runs in the order of their steps, each batch with its consequences."""
