"""What a version's arrays are called, the folder opened for reading, and the form in which it is served."""
