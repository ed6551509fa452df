"""The embedded log: topics of partitions in one SQLite file, shared by many processes."""
