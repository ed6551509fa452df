"""Impressions and clicks that come over HTTP, kept as they are until `feed` joins them."""
