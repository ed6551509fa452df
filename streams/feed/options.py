"""What a feed is asked to do: the options of its readers, the rules that make pairs, and its settings.

A rule is a pure function of the length of the shown list and the clicked ranks (0-based, ascending,
distinct). It returns pairs (clicked, skipped) of ranks in a fixed order: by clicked rank, then by skipped
rank.

The command line takes the names of formats, rules and pairs from here: importing this module is cheap, it
imports no reader.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streams.feed.position_weights import PositionWeights

IMPRESSIONS, TRIPLETS, MSGPACK, UBI = "impressions", "triplets", "msgpack", "ubi"
RELEVANCE, LABELS = "relevance", "labels"
FORMATS = (IMPRESSIONS, TRIPLETS, MSGPACK, UBI, RELEVANCE, LABELS)
"""What `--format` takes; which side of UBI a file holds is always read off its first line, and labels are
never recognised: any two columns look like them."""

PAIRS = ("items", "queries", "co_click")
"""What `--pairs` takes: where the triplets of a relevance table come from."""


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
    """How a table of relevances or labels is sampled: `triplets` of them, by `seed`.

    Of relevances, `pairs`: `items` (R_II of two objects), `queries` (the text query is the query object) or
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
    """`now_ms` is the time of items that carry none; `source` names who clicked where
    they do not; `key` the model
    that is to learn those that name none; `mapping` says what the rows of foreign logs mean: a name, or the
    path of a TOML file; `known` are the ids that labels may be of, None: any."""

    now_ms: int
    source: str | None = None
    ubi: UbiOptions = UbiOptions()
    relevance: RelevanceOptions = RelevanceOptions()
    key: str | None = None
    mapping: str | None = None
    known: Container[str] | None = None


RankPairs = tuple[tuple[int, int], ...]
Rule = Callable[[int, tuple[int, ...]], RankPairs]


def skip_above(shown: int, clicked: tuple[int, ...]) -> RankPairs:
    """Each clicked object over every unclicked one above it: those the user has surely passed."""
    hits = frozenset(clicked)
    return tuple((c, s) for c in clicked for s in range(c) if s not in hits)


def last_click(shown: int, clicked: tuple[int, ...]) -> RankPairs:
    """The lowest clicked object over every unclicked one above it.

    The original takes the click last in time; impressions carry no click times, so the lowest stands
    in for it.
    """
    if not clicked:
        return ()
    hits = frozenset(clicked)
    last = clicked[-1]
    return tuple((last, s) for s in range(last) if s not in hits)


def skip_next(shown: int, clicked: tuple[int, ...]) -> RankPairs:
    """Each clicked object over the object directly below it where that one was not clicked."""
    hits = frozenset(clicked)
    return tuple((c, c + 1) for c in clicked if c + 1 < shown and c + 1 not in hits)


def all_skipped(shown: int, clicked: tuple[int, ...]) -> RankPairs:
    """Each clicked object over every unclicked object of the list, above and below."""
    hits = frozenset(clicked)
    return tuple((c, s) for c in clicked for s in range(shown) if s not in hits)


def clicked_vs_random(shown: int, clicked: tuple[int, ...]) -> RankPairs:
    """No pair of the list itself: the clicked objects meet random catalog objects only."""
    return ()


RULES: Mapping[str, Rule] = MappingProxyType(
    {
        "skip_above": skip_above,
        "last_click": last_click,
        "skip_next": skip_next,
        "all_skipped": all_skipped,
        "clicked_vs_random": clicked_vs_random,
    }
)


OF_BOTH_SIDES = frozenset(("all_skipped",))
"""The rules that give pairs above and below a click."""

HOLDOUTS = ("query", "list")
"""What is held out as a whole: all lists of a query, or single lists (by their ids)."""


@dataclass(frozen=True, slots=True)
class ListProof:
    """How the ids of interleaved and explored lists are checked: `secret`, the key that they were signed
    with; `earliest_ms`: a list made before that comes too late to say anything of its models."""

    secret: bytes = field(repr=False)
    earliest_ms: int = 0


LEAST_APART = 0.1
"""Share of the queries whose lists no arm learns: they tell of every version, also of a log that is learned
before a first version is there to bet on it."""
LEAST_SHARE = 0.15
"""Of its first weight that a random negative keeps, where its weight falls."""


@dataclass(frozen=True, slots=True)
class FeedSettings:
    """How impressions become triplets and where they go.

    `random_negatives` per clicked object of an impression (a plain triplet is fed as it is), each of the
    weight that `weight_of_drawn` gives, on top of at most `triplets_per_impression` pairs of its shown list
    above the clicks, and twice as many of both sides (0: all of them); `holdout_share` of the queries, or
    where `holdout_by` is "list" of the lists, in [0, 1); `holdout_kinds` kinds of queries, each of
    `kind_share` of the catalog, held out as a whole in addition; `query_cap` impressions (or plain triplets)
    kept per query and `dedupe_window` ids remembered, 0 for no cap and no memory; `space` is written into
    items with inline features that name none. Changing `seed` or `holdout_share` between runs moves queries
    between training and holdout. What is stamped later than `latest_ms` is dropped: learners would refuse
    it. `proof`: how signed lists are checked, None where no key is known. `prequential`: lists that are
    learned from are written as lists, too, but for those stamped `untimed_ms`, the time that is given to
    items without one.
        `for_arms`: of held-out lists with a time arms of the race learn all but those of `LEAST_APART` of the
    queries. `position_weights`: how much each pair counts by its ranks, None: all alike. Raises ValueError.
    """

    rule: str = "all_skipped"
    triplets_per_impression: int = 5
    random_negatives: int = 1
    negative_weight: float = 1.0
    negative_falls_from: int = 0
    holdout_share: float = 0.25
    holdout_by: str = "query"
    holdout_kinds: int = 0
    kind_share: float = 0.05
    query_cap: int = 1000
    dedupe_window: int = 100_000
    seed: int = 0
    partitions: int = 1
    space: str | None = None
    latest_ms: int | None = None
    proof: ListProof | None = None
    prequential: bool = False
    for_arms: bool = False
    untimed_ms: int | None = None
    position_weights: PositionWeights | None = None

    def __post_init__(self) -> None:
        if self.rule not in RULES:
            raise ValueError(f"unknown rule {self.rule!r}; use one of {', '.join(RULES)}")
        if self.holdout_by not in HOLDOUTS:
            raise ValueError(f"unknown holdout_by {self.holdout_by!r}; use one of {', '.join(HOLDOUTS)}")
        if not 0.0 <= self.holdout_share < 1.0:
            raise ValueError(f"holdout_share is {self.holdout_share}; use a share in [0, 1)")
        whole = ("triplets_per_impression", "random_negatives", "negative_falls_from", "holdout_kinds")
        for name in (*whole, "query_cap", "dedupe_window"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}; use 0 or more")
        if not 0.0 < self.kind_share < 1.0:
            raise ValueError(f"kind_share is {self.kind_share}; use a share in (0, 1)")
        if not 0.0 < self.negative_weight <= 1.0:
            raise ValueError(f"negative_weight is {self.negative_weight}; use a number above 0, at most 1")
        if self.partitions < 1:
            raise ValueError(f"partitions is {self.partitions}; use 1 or more")

    def weight_of_drawn(self, fed: int) -> float:
        """Of a random negative after `fed` events of the stream: `negative_weight`, from
        `negative_falls_from` events on (0: never) times the root of how much more there is by now, down to
        `LEAST_SHARE` of it."""
        if not self.negative_falls_from or fed < self.negative_falls_from:
            return self.negative_weight
        return self.negative_weight * max(LEAST_SHARE, math.sqrt(self.negative_falls_from / (fed + 1)))
