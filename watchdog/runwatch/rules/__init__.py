"""Rules: parsed, checked, and judged over series."""
