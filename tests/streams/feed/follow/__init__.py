"""Followed click logs: the join in event time, the files, the checkpoint."""
