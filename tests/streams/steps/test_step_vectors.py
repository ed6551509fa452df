"""The golden file: what a segment is, byte for byte, in both directions, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streams.steps.codec import Joiner, encode_segment
from streams.steps.segment import (
    GENESIS,
    NULL_VALUE,
    REASONS,
    BadSegment,
    Base,
    Break,
    ChainPosition,
    RankOneSteps,
    Triplets,
)

from .examples import BODIES, SPARSE, one, plain

GOLDEN = json.loads((Path(__file__).parents[1] / "vectors" / "steps.json").read_text())
VALID, REFUSED = GOLDEN["valid"], GOLDEN["refused"]
KINDS = {"steps": RankOneSteps, "triplets": Triplets, "base": Base, "break": Break}
BODY = BODIES | {"the first in parts": SPARSE}


def records(case) -> list[bytes]:
    return list(map(bytes.fromhex, case["records"]))


def place_of(case) -> ChainPosition:
    return ChainPosition(case["epoch"], case["seq"], case["run"], case["writer"])


@pytest.mark.parametrize("case", VALID, ids=lambda case: case["name"])
def test_bytes_mean_what_the_file_says(case) -> None:
    segment = one(records(case))
    assert segment.place == place_of(case)
    assert type(segment.body) is KINDS[case["kind"]]
    assert plain(segment.body) == case["value"]
    assert segment.after.hex() == case["next"]


def test_the_segments_are_encoded_to_these_bytes_and_hang_on_one_chain() -> None:
    chain = GENESIS
    for case in VALID:
        place, most = place_of(case), max(map(len, records(case)))
        room = 1 << 20 if len(case["records"]) == 1 else most_for(place, chain, len(case["records"]), most)
        encoded = encode_segment(place, BODY[case["name"]], chain, room)
        assert encoded.records == records(case)
        chain = encoded.after
        assert chain.hex() == case["next"]


def most_for(place: ChainPosition, chain: bytes, parts: int, most: int) -> int:
    """The limit on a record for which the segment has these parts."""
    for room in range(most, most + 1024):
        try:
            found = encode_segment(place, SPARSE, chain, room).records
        except BadSegment:
            continue
        if len(found) == parts and max(map(len, found)) == most:
            return room
    raise AssertionError("no limit gives these parts")


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case["name"])
def test_what_breaks_a_rule_is_refused_with_its_reason(case) -> None:
    joiner = Joiner()
    *before, last = records(case)
    for value in before:
        assert joiner.feed(value) is None
    with pytest.raises(BadSegment) as refused:
        joiner.feed(last)
    assert refused.value.reason == case["reason"]
    assert joiner.feed(records(VALID[0])[0]) is not None, "the next segment is read all the same"


def test_a_record_without_a_value_is_refused() -> None:
    with pytest.raises(BadSegment) as refused:
        Joiner().feed(None)
    assert refused.value.reason == NULL_VALUE


def test_every_reason_is_in_the_file() -> None:
    assert {case["reason"] for case in REFUSED} | {NULL_VALUE} == REASONS.keys()
