"""Hooks into torch and other libraries: wrappers around their functions, and step hooks."""
