"""Rules: which (clicked, skipped) pairs of ranks one impression speaks for.

A rule is a pure function of the length of the shown list and the clicked ranks (0-based, ascending,
distinct).  It returns pairs in a fixed order: by clicked rank, then by skipped rank.

Sources: `skip_above`, `last_click` and `skip_next` are "Click > Skip Above", "Last Click > Skip
Above" and "Click > No-Click Next" of Joachims, Granka, Pan, Hembrooke and Gay, "Accurately interpreting
clickthrough data as implicit feedback", SIGIR 2005, section 5.  `all_skipped` takes every object that
was shown and not clicked, as if the whole list had been examined.  `clicked_vs_random` takes none:
its only negatives are the random catalog objects which the feed adds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

Pairs = tuple[tuple[int, int], ...]
Rule = Callable[[int, tuple[int, ...]], Pairs]


def skip_above(shown: int, clicked: tuple[int, ...]) -> Pairs:
    """Each clicked object over every unclicked one above it: those the user has surely passed."""
    hits = frozenset(clicked)
    return tuple((c, s) for c in clicked for s in range(c) if s not in hits)


def last_click(shown: int, clicked: tuple[int, ...]) -> Pairs:
    """The lowest clicked object over every unclicked one above it.

    The original takes the click last in time; impressions carry no click times, so the lowest stands
    in for it.
    """
    if not clicked:
        return ()
    hits = frozenset(clicked)
    last = clicked[-1]
    return tuple((last, s) for s in range(last) if s not in hits)


def skip_next(shown: int, clicked: tuple[int, ...]) -> Pairs:
    """Each clicked object over the object directly below it where that one was not clicked."""
    hits = frozenset(clicked)
    return tuple((c, c + 1) for c in clicked if c + 1 < shown and c + 1 not in hits)


def all_skipped(shown: int, clicked: tuple[int, ...]) -> Pairs:
    """Each clicked object over every unclicked object of the list, above and below."""
    hits = frozenset(clicked)
    return tuple((c, s) for c in clicked for s in range(shown) if s not in hits)


def clicked_vs_random(shown: int, clicked: tuple[int, ...]) -> Pairs:
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
