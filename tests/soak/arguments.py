"""What `python -m tests.soak` is told."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

GROUPS = (
    *("kills", "deaths", "calls", "power", "slow", "full"),
    *("damage", "frozen", "starts", "stops", "restarts", "faults", "answers", "codecs", "ages", "crowds"),
    *("joins", "shards", "s3", "steady"),
)
STREAMS = {"log": ("log",), "kafka": ("kafka",), "both": ("log", "kafka")}


@dataclass(frozen=True)
class Arguments:
    """How much of what, on which streams. 0 calls, looks or bytes: every one there is."""

    kills: int
    seed: int
    minutes: float
    streams: tuple[str, ...]
    only: tuple[str, ...]
    calls: int
    looks: int
    flips: int
    runs: int
    faults: int
    silence_s: float
    versions: int
    steady: float


def parse(words: Sequence[str] | None = None) -> Arguments:
    """Read the command line; argparse tells of mistakes and ends the process."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--kills", type=int, default=440, help="random kills, over all learners and streams")
    parser.add_argument("--seed", type=int, default=1, help="of every random choice")
    parser.add_argument("--minutes", type=float, default=60, help="after that long no further row is begun")
    parser.add_argument("--stream", choices=STREAMS, default="both", help="which kind of log")
    parser.add_argument("--only", nargs="+", choices=GROUPS, default=GROUPS, help="these groups of rows")
    parser.add_argument("--calls", type=int, default=120, help="filesystem calls to fail, per error; 0 each")
    parser.add_argument("--looks", type=int, default=3000, help="disks after a power loss; 0 each")
    parser.add_argument("--flips", type=int, default=0, help="truncations and flips per file; 0 each")
    parser.add_argument("--runs", type=int, default=10, help="stops per moment, restarts, pairs of starts")
    parser.add_argument("--faults", type=int, default=1, help="times that each broker fault strikes")
    parser.add_argument("--silence", type=float, default=60, help="seconds that all brokers hang")
    parser.add_argument("--versions", type=int, default=1_000_000, help="that the oldest folder has written")
    parser.add_argument("--steady", type=float, default=30, help="minutes that all roles are at work")
    given = parser.parse_args(words)
    return Arguments(
        given.kills,
        given.seed,
        given.minutes,
        STREAMS[given.stream],
        tuple(given.only),
        given.calls,
        given.looks,
        given.flips,
        given.runs,
        given.faults,
        given.silence,
        given.versions,
        given.steady,
    )
