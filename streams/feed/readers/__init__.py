"""One reader per input format, each yielding (place, item)."""
