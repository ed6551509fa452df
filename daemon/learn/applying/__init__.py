"""The core, without threads, files or clocks: what a batch does to the state and to the progress."""
