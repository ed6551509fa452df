"""What the readers are told beside their input."""

from __future__ import annotations

from dataclasses import dataclass

PAIRS = ("items", "queries", "co_click")


@dataclass(frozen=True, slots=True)
class UbiOptions:
    """How OpenSearch UBI logs are read.

    `query_field`: dotted path, in a query, of what names the query object.  `click_actions` and
    `shown_actions`: the `action_name`s that count as clicks and as an object having been shown.
    """

    query_field: str = "user_query"
    click_actions: frozenset[str] = frozenset({"click", "click_through"})
    shown_actions: frozenset[str] = frozenset({"impression"})


@dataclass(frozen=True, slots=True)
class RelevanceOptions:
    """How a relevance table is sampled.

    `pairs`: `items` (R_II of two objects), `queries` (the text query is the query object) or
    `co_click` (the largest `share` of C^T C).  `theta` is the threshold of `items`.
    Raises ValueError for any other `pairs`.
    """

    triplets: int = 100_000
    pairs: str = "items"
    theta: float = 0.0
    share: float = 0.01
    seed: int = 0

    def __post_init__(self) -> None:
        if self.pairs not in PAIRS:
            raise ValueError(f"unknown pairs {self.pairs!r}; use one of {', '.join(PAIRS)}")


@dataclass(frozen=True, slots=True)
class ReaderOptions:
    """`now_ms` is the time of items that carry none; `source` names where they come from; `key` the model
    that is to learn those that name none."""

    now_ms: int
    source: str | None = None
    ubi: UbiOptions = UbiOptions()
    relevance: RelevanceOptions = RelevanceOptions()
    key: str | None = None
