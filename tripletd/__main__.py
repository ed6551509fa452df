"""`python -m tripletd`."""

from tripletd import start

start()
