"""Click logs of other tools: what their columns mean is said by a mapping, a TOML file."""
