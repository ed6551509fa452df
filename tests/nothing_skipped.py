"""No test is left out in silence.

In continuous integration (CI or TRIPLETD_NOTHING_SKIPPED is set) a test that would be skipped fails.
Elsewhere the end of the run tells loudly what did not run, and why. = report.longrepr
    return str(told[2] if isinstance(told, tuple) else told).removeprefix("Skipped: ")
