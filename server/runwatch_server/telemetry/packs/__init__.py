"""Old frames, packed by column into immutable objects and read back exact to the bit."""
