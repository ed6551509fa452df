"""A real browser for tests of the page."""
