"""Objects from files that people have: tables, arrays, JSON lines; in batches, errors with their place."""
