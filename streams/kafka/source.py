"""Reading a Kafka topic."""
