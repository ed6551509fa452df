"""Verdicts on the models of single keys: what a judgement writes into the ledger, and what it means for
answers.

A version of which one model per key is learned is judged key by key. Its entry holds, under `keys`, each key
that the holdout window could judge, with its verdict: `LEARNED`, its own model answers, or `COSINE`, the
untrained similarity of version 0 does. Pure.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from checkpoints.entries import LedgerEntry

KEYS = "keys"
"""Of an entry's measures: key -> `KeyVerdict`."""
LEARNED, COSINE = "learned", "cosine"


@dataclass(frozen=True, slots=True)
class KeyVerdict:
    """One key of one judged version: the usable impressions it was judged on, its decision measure and
    version 0's there, the verdict, and why it is not `LEARNED` ("" where it is).
    """

    impressions: int
    decision: float
    version_0: float
    verdict: str
    why: str = ""

    @property
    def learned(self) -> bool:
        """Whether the key's own model answers."""
        return self.verdict == LEARNED


def verdicts_to_json(verdicts: Mapping[str, KeyVerdict]) -> dict[str, Any]:
    """As they stand in an entry's measures."""
    return {key: asdict(one) for key, one in sorted(verdicts.items())}


def verdicts_from_json(measures: Mapping[str, Any]) -> dict[str, KeyVerdict] | None:
    """The inverse; None for an entry that says nothing about keys, or nothing that can be read."""
    found = measures.get(KEYS)
    if not isinstance(found, Mapping):
        return None
    try:
        return {str(key): KeyVerdict(**one) for key, one in found.items()}
    except TypeError:
        return None


@dataclass(frozen=True, slots=True)
class KeyVerdicts:
    """The verdicts of the ledger on keys. versions: the judged ones, ascending. by_key: key -> the versions
    judged on it, ascending, and the newest verdict of each.
    """

    versions: tuple[int, ...] = ()
    by_key: Mapping[str, tuple[tuple[int, ...], tuple[KeyVerdict, ...]]] = field(default_factory=dict)

    @classmethod
    def of(cls, entries: Iterable[LedgerEntry]) -> Self:
        """From all entries; of two judgements of one version the later one counts."""
        found: dict[int, Mapping[str, KeyVerdict]] = {}
        for entry in sorted(entries, key=lambda entry: entry.n):
            verdicts = verdicts_from_json(entry.measures) if entry.kind == "KEEP" else None
            if verdicts is not None and entry.version is not None:
                found[entry.version] = verdicts
        by_key: dict[str, dict[int, KeyVerdict]] = {}
        for number in sorted(found):
            for key, verdict in found[number].items():
                by_key.setdefault(key, {})[number] = verdict
        lines = {key: (tuple(counts), tuple(counts.values())) for key, counts in by_key.items()}
        return cls(tuple(sorted(found)), lines)

    def at(self, version: int) -> Mapping[str, KeyVerdict] | None:
        """Those in force for a version: of each key, that of the newest version not above it which was judged
        on this key. None before any version was judged.
        """
        if not bisect_right(self.versions, version):
            return None
        verdicts = {key: self._of(key, version) for key in self.by_key}
        return {key: verdict for key, verdict in verdicts.items() if verdict is not None}

    def answers(self, key: str, version: int) -> bool:
        """Whether the key's own model of this version answers: the verdict in force says so, or nobody has
        judged any version so far, as `latest` is served unjudged. A key that was never judged counts as
        `COSINE`. A judgement that does not name a key leaves its verdict: who crowds others out of the
        holdout window, or sends nothing for a while, switches no model off.
        """
        if not bisect_right(self.versions, version):
            return True
        verdict = self._of(key, version)
        return verdict is not None and verdict.learned

    def _of(self, key: str, version: int) -> KeyVerdict | None:
        versions, verdicts = self.by_key.get(key, ((), ()))
        place = bisect_right(versions, version)
        return verdicts[place - 1] if place else None
