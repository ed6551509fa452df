"""The step log's writing side: what was applied is published at a cadence, off the loop."""
