"""A replica: one followed alias, loaded, verified and swapped off the path of those who read it."""
