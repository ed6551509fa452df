"""The configured feature space and the catalog's objects in it, for every role."""
