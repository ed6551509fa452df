"""Versions: when one is due, what it records, who may write, what is tidied up afterwards."""
