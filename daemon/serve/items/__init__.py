"""The serving catalog: objects to answer with, from files and a topic of their own, as immutable parts."""
