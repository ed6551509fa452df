"""The role that answers: nearest objects of the served versions over HTTP."""
