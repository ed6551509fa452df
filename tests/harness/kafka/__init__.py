"""A real Apache Kafka for tests: `with Cluster() as cluster: ...` needs no pytest."""
