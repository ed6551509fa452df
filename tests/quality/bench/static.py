"""The lists of the owner's own ranking."""

from __future__ import annotations

from functools import lru_cache

from tests.quality.bench.forms import own_scores
from tests.quality.bench.retrieval import nearest
from tests.quality.bench.sets import Ints, load
from tests.quality.bench.users import LENGTH


@lru_cache(maxsize=8)
def own_lists(name: str) -> Ints:
    """The nearest objects of each row of a set, int64 [n, LENGTH]."""
    data = load(name)
    return nearest(own_scores(data.joined()), LENGTH, len(data))
