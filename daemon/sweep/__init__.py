"""Many settings learned from the same history and judged on the same held-out lists: a grid, its runs, one
table."""
