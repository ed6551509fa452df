"""The settings of one run of the feed."""

from __future__ import annotations

from dataclasses import dataclass

from streams.feed.rules import RULES


@dataclass(frozen=True, slots=True)
class FeedSettings:
    """How impressions become triplets and where they go.

    `random_negatives` per clicked object of an impression (a plain triplet is fed as it is), on top of
    at most `triplets_per_impression` pairs of its shown list (0: all of them);
    `holdout_share` of the queries, in [0, 1); `query_cap`
    impressions (or plain triplets) kept per query and `dedupe_window` ids remembered, 0 for no cap and
    no memory; `space` is written into items with inline features that name none.  Changing `seed`
    or `holdout_share` between runs moves queries between training and holdout.  Raises ValueError.
    """

    rule: str = "skip_above"
    triplets_per_impression: int = 5
    random_negatives: int = 1
    holdout_share: float = 0.1
    query_cap: int = 1000
    dedupe_window: int = 100_000
    seed: int = 0
    partitions: int = 1
    space: str | None = None

    def __post_init__(self) -> None:
        if self.rule not in RULES:
            raise ValueError(f"unknown rule {self.rule!r}; use one of {', '.join(RULES)}")
        if not 0.0 <= self.holdout_share < 1.0:
            raise ValueError(f"holdout_share is {self.holdout_share}; use a share in [0, 1)")
        for name in ("triplets_per_impression", "random_negatives", "query_cap", "dedupe_window"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}; use 0 or more")
        if self.partitions < 1:
            raise ValueError(f"partitions is {self.partitions}; use 1 or more")
