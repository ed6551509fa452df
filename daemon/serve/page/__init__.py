"""The page people look at: static files and the data they show. Reads only; it changes nothing."""
