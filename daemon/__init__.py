"""The roles and the command line; the only package that knows streams, learners and checkpoints."""
