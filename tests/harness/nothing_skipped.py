"""No test is left out in silence.

In continuous integration (CI or TRIPLETD_NOTHING_SKIPPED is set) a test that would be skipped fails.
Elsewhere the end of the run tells loudly what did not run, and why.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator

import pytest


def nothing_may_be_skipped() -> bool:
    """Whether this run must be complete."""
    told = (os.environ.get(name, "") for name in ("CI", "TRIPLETD_NOTHING_SKIPPED"))
    return any(value not in ("", "0", "false") for value in told)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Make a skipped test a failed one where nothing may be skipped."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail") and nothing_may_be_skipped():
        report.outcome = "failed"
        report.longrepr = f"nothing may be skipped here: {_reason(report)}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    """The same for a whole module that leaves itself out."""
    report = yield
    if report.skipped and nothing_may_be_skipped():
        report.outcome = "failed"
        report.longrepr = f"nothing may be skipped here: {_reason(report)}"
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Tell what did not run, once per reason."""
    reasons = Counter(_reason(report) for report in terminalreporter.stats.get("skipped", []))
    if not reasons:
        return
    terminalreporter.section("THIS RUN WAS NOT COMPLETE", sep="!", red=True, bold=True)
    for reason, count in reasons.items():
        terminalreporter.line(f"{count} test{'s' * (count > 1)} did not run: {reason}", red=True)


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    told = report.longrepr
    return str(told[2] if isinstance(told, tuple) else told).removeprefix("Skipped: ")
