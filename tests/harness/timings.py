"""Where the time of a run went: seconds of processors and of the clock, per folder and file."""

from __future__ import annotations

import resource
from collections import Counter, defaultdict
from collections.abc import Generator, Iterable

import pytest

DEPTH = 3
"""Folders are told apart down to this depth: tests/daemon/learn."""
FILES = 40
"""So many of the files that take most are told."""


def folder_of(nodeid: str) -> str:
    """The folder of a test, no deeper than `DEPTH`."""
    parts = nodeid.partition("::")[0].split("/")[:-1]
    return "/".join(parts[:DEPTH])


def file_of(nodeid: str) -> str:
    """The file of a test."""
    return nodeid.partition("::")[0]


def processor_seconds() -> float:
    """What this process took so far, and those of its children that have ended."""
    spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in spent)


class _Meter:
    """Gives each report of a worker what was spent since the one before it."""

    def __init__(self) -> None:
        self._before = processor_seconds()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        before, self._before = self._before, processor_seconds()
        vars(report)["processor"] = self._before - before
        return report


def pytest_collection_finish(session: pytest.Session) -> None:
    """Begin to measure: the imports are done."""
    session.config.pluginmanager.register(_Meter())


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """A line per folder and per costly file, the costliest first: with set-up and tear-down, and how many
    tests. What a server took counts where it ends."""
    if not terminalreporter.config.option.durations:
        return
    reports = [
        report
        for some in terminalreporter.stats.values()
        for report in some
        if isinstance(report, pytest.TestReport)
    ]
    _tell(terminalreporter, "folder", [(folder_of(report.nodeid), report) for report in reports])
    _tell(terminalreporter, "file", [(file_of(report.nodeid), report) for report in reports], FILES)


def _tell(
    terminalreporter: pytest.TerminalReporter,
    what: str,
    reports: Iterable[tuple[str, pytest.TestReport]],
    most: int | None = None,
) -> None:
    processor: defaultdict[str, float] = defaultdict(float)
    clock: defaultdict[str, float] = defaultdict(float)
    tests: Counter[str] = Counter()
    for place, report in reports:
        processor[place] += report.processor
        clock[place] += report.duration
        tests[place] += report.when == "call"
    title = (
        f"seconds of processors ({sum(processor.values()):.0f}) and of the clock, of all workers, per {what}"
    )
    terminalreporter.section(title)
    for place, spent in sorted(processor.items(), key=lambda one: -one[1])[:most]:
        terminalreporter.line(f"{spent:8.1f} s {clock[place]:8.1f} s {tests[place]:6} tests  {place}")
