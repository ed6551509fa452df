"""Texts as bags of words, and as vectors of a model in a folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import cache

import numpy as np

from daemon.describe.codebooks import Bag

LEAST_HOLDING = 2
"""Texts that hold a word, at least: of one that a single text holds nothing can be learned."""
MOST_COUNTED = 2_000_000
"""Words that are counted at one time; where there are more, those that only one text held so far are
dropped."""


@cache
def word_reader() -> Callable[[str], list[str]]:
    """What cuts a text into words: scikit-learn's way, two letters or digits and more, in lower case."""
    from sklearn.feature_extraction.text import CountVectorizer

    found: Callable[[str], list[str]] = CountVectorizer().build_analyzer()
    return found


def holding(texts: Iterable[str]) -> Counter[str]:
    """How many of these texts hold each word."""
    found: Counter[str] = Counter()
    for text in texts:
        found.update(set(word_reader()(text)))
    return found


def add_counts(total: Counter[str], more: Mapping[str, int]) -> None:
    """Add up, within `MOST_COUNTED`."""
    for word, count in more.items():
        total[word] += count
    if len(total) > MOST_COUNTED:
        for word in [one for one, count in total.items() if count < LEAST_HOLDING]:
            del total[word]


def chosen_words(total: Mapping[str, int], most: int) -> tuple[str, ...]:
    """The words that most texts hold, at most so many, in the order of code points; of equals those first."""
    found = [(-count, word) for word, count in total.items() if count >= LEAST_HOLDING]
    return tuple(sorted(word for _, word in sorted(found)[:most]))


def bag_of(text: str, places: Mapping[str, int]) -> Bag:
    """Its words that have a place, counted; others are passed over."""
    found = [places[word] for word in word_reader()(text) if word in places]
    return Bag.of(np.array(found, np.int64))
