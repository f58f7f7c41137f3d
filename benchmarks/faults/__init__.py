"""What the built-in rules make of real training programs: ill ones, and healthy ones.

`models` and `programs` are small PyTorch programs of many kinds, which train on a CPU in seconds;
`catalogue` lists the faults and where they strike; `recording` trains with the hook attached and
reads back what it wrote; `scoring` judges that by the rules and says what was caught.
"""
