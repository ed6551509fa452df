"""Every algorithm that a configuration can name has its line among the crash tests."""

from __future__ import annotations

import tomllib

from daemon.config.learners import LEARNERS
from tests.harness.kill.site import CASES


def test_no_learner_is_left_out() -> None:
    tables = [tomllib.loads(case.learner) for case in CASES]
    assert {table.get("algorithm", "oasis") for table in tables} == set(LEARNERS)
