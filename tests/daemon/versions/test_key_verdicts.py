"""Verdicts on single keys, from the ledger to what answers."""

from __future__ import annotations

from typing import Any

import pytest

from checkpoints.entries import LedgerEntry
from daemon.versions.key_verdicts import COSINE, KEYS, LEARNED, KeyVerdict, KeyVerdicts, verdicts_to_json


def keep(n: int, version: int, **verdicts: str) -> LedgerEntry:
    told = {key: KeyVerdict(100, 0.9, 0.8, verdict) for key, verdict in verdicts.items()}
    return LedgerEntry(n=n, kind="KEEP", version=version, measures={KEYS: verdicts_to_json(told)})


def test_unjudged_versions_answer_as_they_learned() -> None:
    assert KeyVerdicts().answers("a", 7)
    assert KeyVerdicts.of([keep(1, 5, a=COSINE)]).answers("a", 4)


def test_a_verdict_holds_until_a_newer_version_is_judged_on_its_key() -> None:
    told = KeyVerdicts.of(
        [keep(1, 3, a=LEARNED, b=COSINE, c=LEARNED), keep(2, 6, a=COSINE, b=LEARNED), keep(3, 8, a=LEARNED)]
    )
    assert [told.answers("a", version) for version in (3, 5, 6, 8)] == [True, True, False, True]
    assert [told.answers("b", version) for version in (3, 5, 6, 9)] == [False, False, True, True]
    assert [told.answers("c", version) for version in (3, 9)] == [True, True], "others' lists do not end it"
    assert not told.answers("never judged", 3)
    in_force = {number: told.at(number) or {} for number in (3, 6, 9)}
    assert {number: {key: one.verdict for key, one in told.items()} for number, told in in_force.items()} == {
        3: {"a": LEARNED, "b": COSINE, "c": LEARNED},
        6: {"a": COSINE, "b": LEARNED, "c": LEARNED},
        9: {"a": LEARNED, "b": LEARNED, "c": LEARNED},
    }
    assert told.at(2) is None


def test_the_later_judgement_of_a_version_counts() -> None:
    assert KeyVerdicts.of([keep(2, 3, a=COSINE), keep(1, 3, a=LEARNED)]).answers("a", 3) is False


@pytest.mark.parametrize("measures", [{}, {KEYS: 3}, {KEYS: {"a": {"verdict": LEARNED}}}, {KEYS: {"a": 5}}])
def test_entries_that_say_nothing_about_keys_do_not_count(measures: dict[str, Any]) -> None:
    told = KeyVerdicts.of([keep(1, 3, a=COSINE), LedgerEntry(n=2, kind="KEEP", version=4, measures=measures)])
    assert told.versions == (3,)
