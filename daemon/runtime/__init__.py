"""What every role shares at run time: signals, readiness, reload, watchdog, logs, threads besides the
loop."""
