"""Start positions: every form, and a clear refusal of everything else."""

from __future__ import annotations

import pytest

from daemon.exits import EX_USAGE, UserError
from daemon.learn.resume.origin import StartPoint, choose_offsets, parse_start

BOUNDS = {0: (5, 20), 1: (0, 3)}


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("checkpoint", StartPoint("checkpoint")),
        ("earliest", StartPoint("earliest")),
        ("latest", StartPoint("latest")),
        ("ts=1500", StartPoint("ts", ts=1500)),
        ("ts=1970-01-01T00:00:02Z", StartPoint("ts", ts=2000)),
        ("ts=1970-01-01T01:00:02+01:00", StartPoint("ts", ts=2000)),
        ("last=1h30m", StartPoint("last", back_s=5400.0)),
        ('offset={"1": 2, "0": 7}', StartPoint("offset", offsets=((0, 7), (1, 2)))),
    ],
)
def test_forms(text: str, start: StartPoint) -> None:
    assert parse_start(text) == start


@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        "ts=",
        "ts=2026-01-01T00:00:00",
        "ts=9007199254740992",
        "last=soon",
        "last=9999999999999d",
        "offset=3",
        'offset={"0": -1}',
        'offset={"a": 1}',
        "offset={",
        'offset={"0": "x"}',
        "latest=1",
    ],
)
def test_refusals_list_the_forms(text: str) -> None:
    with pytest.raises(UserError) as refused:
        parse_start(text)
    assert refused.value.code == EX_USAGE
    assert "earliest" in refused.value.remedy


@pytest.mark.parametrize(
    ("start", "at_ts", "offsets"),
    [
        (StartPoint("checkpoint"), None, {0: 5, 1: 0}),
        (StartPoint("earliest"), None, {0: 5, 1: 0}),
        (StartPoint("latest"), None, {0: 20, 1: 3}),
        (StartPoint("ts", ts=1), {0: 9}, {0: 9, 1: 3}),
        (StartPoint("offset", offsets=((0, 20),)), None, {0: 20, 1: 0}),
    ],
)
def test_offsets(start: StartPoint, at_ts: dict[int, int] | None, offsets: dict[int, int]) -> None:
    assert choose_offsets(start, BOUNDS, at_ts) == offsets


@pytest.mark.parametrize("offsets", [((2, 0),), ((0, 4),), ((0, 21),)])
def test_offsets_outside_the_stream_are_refused(offsets: tuple[tuple[int, int], ...]) -> None:
    with pytest.raises(UserError):
        choose_offsets(StartPoint("offset", offsets=offsets), BOUNDS, None)
