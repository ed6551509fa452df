"""`--quick`: no test that needs a broker, a browser, a process of its own or a whole role, and each law of
the learners on one setting of each implementation. `make check` runs what is left; `make test` all.
"""

from __future__ import annotations

import pytest

OF_LEARN = (
    "any_learner",
    "caps",
    "caught_up",
    "damaged",
    "dedupe",
    "halts",
    "keys",
    "pause",
    "pulls",
    "role",
    "times",
)
OF_SERVE = ("clicks", "freshness", "page_of_role", "role", "serve_metrics", "stands_still")
"""Modules of those two folders that run whole roles."""
LEFT_OUT = (
    "tests/checkpoints/test_fold.py::test_tens_of_thousands",
    "tests/checkpoints/test_history_fold.py::test_an_old_history_of_tens_of_thousands",
    "tests/checkpoints/test_history_fold.py::test_no_failing_call_and_no_lost_power",
    "tests/daemon/demo",
    "tests/daemon/kafka",
    "tests/daemon/learn/resume/test_continuing",
    *(f"tests/daemon/learn/test_{name}" for name in OF_LEARN),
    "tests/daemon/models/test_vectors",
    "tests/daemon/replica/test_any_learner",
    "tests/daemon/replica/test_no_wrong_answer",
    "tests/daemon/serve/items/test_index_model",
    "tests/daemon/serve/page/test_browser",
    "tests/daemon/serve/page/test_hostile",
    "tests/daemon/serve/page/test_steering",
    "tests/daemon/serve/retrieve/test_role",
    *(f"tests/daemon/serve/test_{name}" for name in OF_SERVE),
    "tests/daemon/test_status",
    "tests/daemon/test_tenants",
    "tests/daemon/test_up_answers",
    "tests/daemon/validate/test_best.py::test_a_validator_restarted_before_every_step",
    "tests/daemon/validate/test_interleaved.py::test_a_user_without_preference",
    "tests/daemon/validate/test_interleaved.py::test_on_real_photos",
    "tests/daemon/validate/test_preferences.py::test_of_ten_thousand_streams",
    "tests/daemon/validate/test_prequential.py::test_of_a_thousand_streams",
    "tests/deploy",
    "tests/kafka",
    "tests/kill",
    "tests/learners/multikernel/test_omks.py",
    "tests/mutations",
    "tests/quality",
    "tests/soak",
    "tests/streams/feed/test_feed_pipeline",
    "tests/streams/feed/test_position_bias",
    "tests/streams/kafka",
    "tests/streams/test_compiled_agrees",
)
"""Tests of whole roles, of brokers, and long runs: how their ids begin."""

BROKERS = {"kafka", "kafka_node", "kafka_three", "kafka_secured", "postgres"}
CLIENTS = {"kafka", "confluent"}
STARTERS = {"subprocess", "forked", "multiprocessing", "sync_playwright", "Process", "CliRunner"}
"""Names in a test module by which it starts processes, a browser or the whole command line."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--quick`."""
    parser.addoption("--quick", action="store_true", help="no brokers, browsers, processes")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is not quick."""
    if not config.getoption("--quick"):
        return
    quick: dict[bool, list[pytest.Item]] = {True: [], False: []}
    for item in items:
        quick[_is_quick(item)].append(item)
    config.hook.pytest_deselected(items=quick[False])
    items[:] = quick[True]


def _is_quick(item: pytest.Item) -> bool:
    from tests.learners.learners_under_test import EACH

    if item.nodeid.startswith(LEFT_OUT) or BROKERS & set(getattr(item, "fixturenames", ())):
        return False
    if STARTERS & set(vars(item.module)):  # type: ignore[attr-defined]
        return False
    given = item.callspec.params if hasattr(item, "callspec") else {}
    if {"backend", "broker", "shop"} & set(given) and set(map(str, given.values())) & CLIENTS:
        return False
    subject = given.get("subject")
    return type(subject).__name__ != "UnderTest" or subject in EACH
