"""Where a run begins: what is asked for, whether a version may be continued, the maps of a new store."""
