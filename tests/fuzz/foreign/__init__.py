"""The inputs under the law of `tests.fuzz.law`, a module for each kind."""
