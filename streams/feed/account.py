"""The account of a feed: what became of every item, and sums that balance."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from streams.feed.decide import Decision


@dataclass(slots=True)
class Account:
    """Counts of one run.

    `read` = `training` + `holdout` + the sum of `dropped`, in impressions (or plain triplets,
    or malformed lines).  `triplets` = `from_pairs` + `random_negatives`, in events written to
    training; a plain triplet is a pair.  `pairs` = `from_pairs` + `unknown_pairs` (left out because the
    catalog lacks an object) + `capped_pairs` (left out by `triplets_per_impression`): the pairs of the
    impressions fed to training.  `ignored` lines are no impressions.  `no_negative`: random negatives
    wanted of which no eligible object was found.
    """

    read: int = 0
    training: int = 0
    holdout: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    ignored: Counter[str] = field(default_factory=Counter)
    triplets: int = 0
    from_pairs: int = 0
    random_negatives: int = 0
    no_negative: int = 0
    pairs: int = 0
    unknown_pairs: int = 0
    capped_pairs: int = 0

    def add(self, decision: Decision) -> None:
        """Enter one decision."""
        if decision.fate == "ignored":
            self.ignored[decision.reason] += 1
            return
        self.read += 1
        if decision.fate == "dropped":
            self.dropped[decision.reason] += 1
        elif decision.fate == "holdout":
            self.holdout += 1
        else:
            self.training += 1
            made = decision.made
            self.triplets += len(decision.records)
            self.random_negatives += made.negatives
            self.from_pairs += len(made.events) - made.negatives
            self.no_negative += made.no_negative
            self.pairs += made.pairs
            self.unknown_pairs += made.lost_pairs
            self.capped_pairs += made.capped_pairs

    def balances(self) -> bool:
        """Whether nothing was read without a fate, nor written without a ground."""
        fates = self.training + self.holdout + sum(self.dropped.values())
        pairs = self.from_pairs + self.unknown_pairs + self.capped_pairs
        written = self.from_pairs + self.random_negatives
        return (self.read, self.triplets, self.pairs) == (fates, written, pairs)

    def copy(self) -> Account:
        """An account that later entries do not change."""
        counts = {name: getattr(self, name) for name in self.__slots__}
        return Account(**{**counts, "dropped": self.dropped.copy(), "ignored": self.ignored.copy()})

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; reasons sorted by name."""
        counts = {name: getattr(self, name) for name in self.__slots__}
        return {
            **counts,
            "dropped": dict(sorted(self.dropped.items())),
            "ignored": dict(sorted(self.ignored.items())),
        }
