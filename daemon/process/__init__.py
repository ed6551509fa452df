"""A role as a process: signals, watchdog, service manager, log lines, reloading, leaving."""
