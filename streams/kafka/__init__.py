"""Kafka: reading and writing topics of a broker, through one of two clients."""
