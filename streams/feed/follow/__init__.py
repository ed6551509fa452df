"""Click logs that never end: files and topics, followed, joined in event time, with their own checkpoint."""
