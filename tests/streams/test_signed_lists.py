"""Ids of lists made by chance: what was signed is read back, and nothing else is believed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from streams.event import EITHER, FIRST, SECOND, Draft, DraftModel, Impression, ObjectRef
from streams.signed_lists import (
    NONCE_BYTES,
    BadSignature,
    SignedList,
    explored_chance,
    read_signed,
    sign_list,
)

SECRET = b"0123456789abcdef0123456789abcdef"
MODELS = (DraftModel("stable", 12, 3_400_000), DraftModel("latest", 57, 4_100_333))
SHOWN = [f"object-{rank}" for rank in range(10)]
TEAMS = (EITHER, FIRST, SECOND, SECOND, FIRST, EITHER, FIRST, SECOND, EITHER, FIRST)
SAID = SignedList(1_700_000_000_123, Draft(MODELS, TEAMS))
QUERY = ObjectRef("q7")


def signed(said: SignedList = SAID, **more: object) -> Impression:
    """A list as it comes back, two of its objects clicked."""
    how = {"query": QUERY, "shown": SHOWN, "nonce": bytes(NONCE_BYTES), **more}
    name = sign_list(SECRET, said, **how)  # type: ignore[arg-type]
    shown = tuple(map(ObjectRef, how["shown"]))  # type: ignore[call-overload]
    return Impression(name, 1_700_000_009_000, how["query"], shown, (1, 2), key=how.get("key"))  # type: ignore[arg-type]


def refused(impression: Impression, secret: bytes = SECRET) -> str:
    with pytest.raises(BadSignature) as error:
        read_signed(secret, impression)
    return str(error.value)


def test_what_was_signed_is_read_back() -> None:
    explored = replace(SAID, draft=replace(SAID.draft, explored=3, chance=explored_chance(10, 5_000)))
    assert read_signed(SECRET, signed()) == SAID
    assert read_signed(SECRET, signed(explored, eligible=5_000)) == explored
    assert read_signed(SECRET, signed(key="anna")) == SAID
    one = SignedList(1, Draft((MODELS[0],), (EITHER,) * 10))
    assert read_signed(SECRET, signed(one)) == one


def test_it_fits_what_opensearch_indexes_of_a_query_id() -> None:
    explored = replace(SAID, draft=replace(SAID.draft, explored=3, chance=explored_chance(10, 5_000)))
    assert len(signed().id) <= 100
    assert len(signed(explored, eligible=5_000).id) <= 100


@pytest.mark.parametrize(
    "change",
    [
        {"query": ObjectRef("q8")},
        {"query": ObjectRef(x=np.ones(3, np.float32))},
        {"key": "anna"},
        {"shown": tuple(map(ObjectRef, reversed(SHOWN)))},
        {"shown": tuple(map(ObjectRef, SHOWN[:9]))},
        {"shown": tuple(map(ObjectRef, [*SHOWN, "another"]))},
        {"shown": tuple(map(ObjectRef, [*SHOWN[:9], "another"]))},
    ],
)
def test_another_list_query_or_key_is_refused(change: dict[str, object]) -> None:
    assert "was not signed" in refused(replace(signed(), **change))  # type: ignore[arg-type]


def test_another_secret_is_refused() -> None:
    assert "was not signed" in refused(signed(), SECRET[::-1])


def test_where_one_object_ends_and_the_next_begins_is_signed() -> None:
    two = SignedList(1, Draft(MODELS, (FIRST, SECOND)))
    honest = signed(two, shown=["ab", "c"])
    refused(replace(honest, shown=(ObjectRef("a"), ObjectRef("bc"))))


@given(at=st.integers(min_value=5), to=st.characters())
def test_no_changed_character_passes(at: int, to: str) -> None:
    honest = signed()
    at = 5 + at % (len(honest.id) - 5)
    forged = honest.id[:at] + to + honest.id[at + 1 :]
    if forged != honest.id:
        refused(replace(honest, id=forged))


@given(st.text(st.characters(), max_size=200))
@example("\ud800")  # JSON can hold half a character, which no encoding has
def test_whatever_is_written_as_an_id_is_refused_and_nothing_else_happens(text: str) -> None:
    refused(replace(signed(), id=f"tdl1.{text}"))
