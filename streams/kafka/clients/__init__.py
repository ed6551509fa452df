"""What a Kafka client has to do, and the two that do it. Nothing is imported before it is chosen."""
