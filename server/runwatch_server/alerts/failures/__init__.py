"""Notifies people of runs that failed and said so, and that nobody has started again; and of
attempts that go on though another was opened in their place."""
