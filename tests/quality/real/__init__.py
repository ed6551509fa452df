"""Lists that people clicked, from public collections that a user downloads, and what is learned there."""
