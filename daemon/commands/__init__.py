"""The commands of `tripletd`, one file each; whatever is slow to import is imported inside them."""
