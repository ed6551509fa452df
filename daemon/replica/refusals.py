"""Versions that are not served, by reason: counted and told once each, tried again after a while."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import structlog

FIRST_RETRY_S, LONGEST_RETRY_S = 5.0, 300.0
"""A file may be put back, a disk may recover: the wait doubles from the one to the other."""

REASONS: Mapping[str, str] = {
    "missing": "a file that its manifest names is not there",
    "truncated": "a file ends early",
    "altered": "a file's bytes do not match its hash",
    "malformed": "a file is not of its format",
    "mismatch": "its files contradict each other",
    "unreadable": "a file cannot be read",
    "future_format": "it was written by a newer release",
    "not_finite": "it holds numbers that are not finite",
    "other_shape": "its matrix has another shape than what is served",
    "other_map": "its objects are mapped by another map than what is served, which is that of the version "
    "that was newest when serving started; start it again for a newer one, or serve this one from a folder "
    "of its own",
    "other_space": "it was learned in another space than what is served",
    "older": "it is older than what is served, and no verdict moved the name back to it",
    "form": "its serving form cannot be made",
    "prepare": "what is computed for a model before it answers failed",
    "warm": "its first search failed",
}


log = structlog.get_logger("tripletd.replica")


class Refused(Exception):
    """A version is not served; `reason` is a key of REASONS, the message names place and problem."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{detail} ({REASONS[reason]})")
        self.reason = reason


@dataclass(slots=True)
class _Case:
    """One refused version: why, and when it is tried again."""

    told: str
    wait_s: float
    again_at: float


@dataclass(slots=True)
class Refusals:
    """What was refused under one alias. `now` is any clock in seconds that only goes forward."""

    alias: str
    counts: Counter[str] = field(default_factory=Counter)
    _cases: dict[int, _Case] = field(default_factory=dict)
    _told: set[tuple[int, str]] = field(default_factory=set)

    def add(self, number: int, refused: Refused, now: float) -> None:
        """Version `number` was refused now, and is barred for a while."""
        case = self._cases.setdefault(number, _Case("", FIRST_RETRY_S / 2, now))
        case.wait_s = min(2 * case.wait_s, LONGEST_RETRY_S)
        case.told, case.again_at = str(refused), now + case.wait_s
        self._tell(number, refused)

    def older(self, number: int, why: str) -> None:
        """Version `number` is not served because it is older; a verdict may move the name to it any time."""
        self._tell(number, Refused("older", why))

    def barred(self, now: float) -> dict[int, str]:
        """The versions not to be tried now, each with why."""
        return {number: case.told for number, case in self._cases.items() if now < case.again_at}

    def keep(self, listed: set[int]) -> None:
        """Forget versions that are not there any more."""
        self._cases = {number: case for number, case in self._cases.items() if number in listed}
        self._told = {told for told in self._told if told[0] in listed}

    def _tell(self, number: int, refused: Refused) -> None:
        if (number, refused.reason) not in self._told:
            self._told.add((number, refused.reason))
            self.counts[refused.reason] += 1
            log.error(
                "a version is refused",
                alias=self.alias,
                version=number,
                reason=refused.reason,
                why=str(refused),
            )
