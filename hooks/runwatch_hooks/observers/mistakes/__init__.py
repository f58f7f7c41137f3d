"""Detectors of mistakes in training programs that no metric shows."""
