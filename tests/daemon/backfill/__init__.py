"""Learning from history: `tripletd backfill`."""
