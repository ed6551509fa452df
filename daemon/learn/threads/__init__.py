"""What runs beside the loop: reading ahead, asking the stream, writing dead letters."""
