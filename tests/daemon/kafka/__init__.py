"""The daemon on a real Kafka, and its configuration for one."""
