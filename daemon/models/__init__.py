"""What people do with versions: promote, roll back, pin, unpin, prune now, compare two."""
