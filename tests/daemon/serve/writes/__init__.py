"""Raw records over HTTP."""
