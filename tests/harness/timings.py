"""Where the time of a run went: seconds per folder, after pytest's own list of the slowest tests."""

from __future__ import annotations

from collections import Counter

import pytest

DEPTH = 3
"""Folders are told apart down to this depth: tests/daemon/learn."""


def folder_of(nodeid: str) -> str:
    """The folder of a test, no deeper than `DEPTH`."""
    parts = nodeid.partition("::")[0].split("/")[:-1]
    return "/".join(parts[:DEPTH])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line per folder, the slowest first: seconds of set-up, test and tear-down, and how many tests."""
    if not terminalreporter.config.option.durations:
        return
    seconds: Counter[str] = Counter()
    tests: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                seconds[folder_of(report.nodeid)] += report.duration
                tests[folder_of(report.nodeid)] += report.when == "call"
    terminalreporter.section("seconds per folder, of all workers together")
    for folder, spent in seconds.most_common():
        terminalreporter.line(f"{spent:8.1f} s {tests[folder]:6} tests  {folder}")
