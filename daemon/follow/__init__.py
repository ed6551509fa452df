"""The feed role: click logs that never end, followed, joined in event time, and fed into the stream."""
