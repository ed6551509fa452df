"""Many settings of one history: `tripletd sweep`."""
