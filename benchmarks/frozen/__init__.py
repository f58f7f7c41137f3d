"""What the hook records, what the rules find in it and what is done about it, run by run: kept in
files, so that a change that should change nothing can be seen to change nothing."""
