"""Many settings learned from one history and judged on the same held-out lists: a grid, runs, a table."""
