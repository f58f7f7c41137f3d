"""Evaluate incoming frames in step order, keep the resulting alerts and carry out their actions."""
