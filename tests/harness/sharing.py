"""Which tests share a worker, and which begin first.

The tests of a file stay together: they share its fixtures, a browser or a server, and what its modules keep.
Tests of one `xdist_group` do, too, wherever they are. Long tests that share nothing are dealt out one by one.
What takes longest begins first, so that at the end no worker waits for another.
"""

from __future__ import annotations

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling, Scheduling
from xdist.workermanage import WorkerController

DEALT_OUT = ("tests/kill/", "tests/daemon/test_up_answers.py", "tests/kafka/test_bombs.py")
"""How the ids of tests begin that share nothing with others of their file."""
FIRST = (
    "kafka-",
    "clicks on",
    "tests/kill/",
    "tests/soak/",
    "tests/daemon/kafka/",
    "tests/daemon/test_up_answers.py",
    "tests/daemon/serve/page/",
    "tests/daemon/learn/",
    "tests/daemon/",
    "tests/streams/kafka/",
    "tests/test_forked.py",
    "tests/deploy/",
    "tests/checkpoints/",
    "tests/learners/",
)
"""How the names of groups, files and tests begin that come before all others, in this order."""


def unit_of(nodeid: str) -> str:
    """What a test is given to a worker with: a group, a file, or the test alone."""
    at = nodeid.rfind("@")
    if at > nodeid.rfind("]"):
        return nodeid[at + 1 :]
    return nodeid if nodeid.startswith(DEALT_OUT) else nodeid.partition("::")[0]


def rank(unit: str) -> int:
    """Its place in `FIRST`, or the place after all of them."""
    return next((place for place, start in enumerate(FIRST) if unit.startswith(start)), len(FIRST))


class _LongestFirst(LoadScopeScheduling):
    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)

    def _assign_work_unit(self, node: WorkerController) -> None:
        self.workqueue.move_to_end(min(self.workqueue, key=rank), last=False)
        super()._assign_work_unit(node)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling | None:
    """The scheduler of `--dist loadgroup`; every other way of dealing out stays xdist's own."""
    if config.getvalue("dist") != "loadgroup":
        return None
    config.option.loadscopereorder = False
    return _LongestFirst(config, log)
