"""A first configuration, made from the files that somebody has."""
