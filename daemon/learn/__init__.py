"""The learn role: reads events in order, updates the similarity one event at a time, writes versions."""
