"""What the command line may ask of one run of the learner, and the start positions it may name."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from daemon.config.values import parse_duration
from daemon.exits import EX_USAGE, UserError
from streams.limits import MAX_TS

START_HELP = (
    'checkpoint, earliest, latest, ts=2026-01-31T12:00:00Z, ts=1769860800000, last=1h or offset={"0": 1234}'
)


@dataclass(frozen=True, slots=True)
class LearnOptions:
    """One run: leave when all is learned, where to start, branch from a version, accept expired records,
    leave the position of an existing version for `start`, go on with another log, do so once more.

    `restart_name`: latest or an alias, which stands for `restart_from` where that is None.
    """

    exit_when_caught_up: bool = False
    start: str = "checkpoint"
    restart_from: int | None = None
    accept_gap: bool = False
    jump: bool = False
    accept_log: bool = False
    again: bool = False
    restart_name: str | None = None


@dataclass(frozen=True, slots=True)
class Start:
    """A parsed start position: `ts` in ms since the epoch, `back_s` before now, `offsets` per partition."""

    kind: Literal["checkpoint", "earliest", "latest", "ts", "last", "offset"]
    ts: int = 0
    back_s: float = 0.0
    offsets: tuple[tuple[int, int], ...] = ()


def parse_start(text: str) -> Start:
    """Read `--start`. Raises UserError (usage) that lists the accepted forms."""
    kind, _, value = text.partition("=")
    try:
        if text in ("checkpoint", "earliest", "latest"):
            return Start(text)  # type: ignore[arg-type]
        if kind == "ts":
            return Start("ts", ts=_milliseconds(value))
        if kind == "last":
            return Start("last", back_s=parse_duration(value))
        if kind == "offset":
            return Start("offset", offsets=_offsets(json.loads(value)))
    except (ValueError, TypeError) as error:
        raise UserError(f"start position {text!r}: {error}", f"use one of {START_HELP}", EX_USAGE) from None
    raise UserError(f"start position {text!r} is not known", f"use one of {START_HELP}", EX_USAGE)


def choose_offsets(
    start: Start, bounds: Mapping[int, tuple[int, int]], at_ts: Mapping[int, int] | None
) -> dict[int, int]:
    """Next offset per partition; `checkpoint` counts as earliest here, for an empty store.

    `bounds` is (earliest, end) per partition; `at_ts` the first offsets at the time of `ts` or `last`.
    Raises UserError for partitions and offsets that the stream does not hold.
    """
    if start.kind == "latest":
        return {partition: end for partition, (_, end) in bounds.items()}
    if start.kind in ("ts", "last"):
        assert at_ts is not None
        return {partition: at_ts.get(partition, end) for partition, (_, end) in bounds.items()}
    chosen = {partition: earliest for partition, (earliest, _) in bounds.items()}
    for partition, offset in start.offsets:
        if partition not in bounds:
            raise UserError(
                f"start offset names partition {partition}, which the stream does not have",
                f"it has {', '.join(map(str, sorted(bounds)))}",
                EX_USAGE,
            )
        earliest, end = bounds[partition]
        if not earliest <= offset <= end:
            raise UserError(
                f"start offset {offset} of partition {partition} is outside the stream",
                f"it holds {earliest} up to {end}",
                EX_USAGE,
            )
        chosen[partition] = offset
    return chosen


def _milliseconds(value: str) -> int:
    if re.fullmatch(r"\d+", value):
        if int(value) > MAX_TS:
            raise ValueError("the time is beyond 2^53 - 1 milliseconds")
        return int(value)
    moment = datetime.fromisoformat(value)
    if moment.tzinfo is None:
        raise ValueError("the time needs a zone, such as Z or +02:00")
    return int(moment.timestamp() * 1000)


def _offsets(value: Any) -> tuple[tuple[int, int], ...]:
    if not isinstance(value, dict) or not all(isinstance(v, int) and v >= 0 for v in value.values()):
        raise ValueError("offsets are a JSON object of partition: next offset")
    return tuple(sorted((int(partition), offset) for partition, offset in value.items()))
