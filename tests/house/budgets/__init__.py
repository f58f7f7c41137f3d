"""What the project may cost a reader: figures counted from the code and from traces of it, each
with a budget in `budgets.toml` that only goes down."""
