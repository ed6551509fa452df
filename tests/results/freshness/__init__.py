"""What freshness is worth: the same clicks, answered with a model of a moment, an hour or a day ago."""
