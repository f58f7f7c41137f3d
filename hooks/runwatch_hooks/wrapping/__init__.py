"""Stand-ins for functions of torch and of other libraries, by which we hear of their calls."""
