"""Reading click logs for what they say of places: which lists count, and what chance had placed in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from streams.event import Impression
from streams.feed.decide import REFUSALS, SeenIds, check_texts, refused
from streams.feed.items import DUPLICATE, Dropped, Placed, scoped
from streams.feed.shown_places import PositionBias, ShownPlaces, as_proved
from streams.signed_lists import is_signed


@dataclass(slots=True)
class ListReader:
    """Takes lists out of what a reader gives.

    secret: checks signed ids, b"" where none is known. remembered: how many ids are known again. `dropped`:
    what did not count, by reason; `unchecked`: lists with a signed id that nothing could check, which count
    as any others.
    """

    secret: bytes
    remembered: int
    dropped: Counter[str] = field(default_factory=Counter)
    unchecked: int = 0

    def read(self, items: Iterable[Placed], ranks: int, shuffled: Collection[str]) -> PositionBias:
        """What the lists say of their first `ranks` ranks. Raises FeedError."""
        places, seen = ShownPlaces(ranks, shuffled), SeenIds(self.remembered)
        for _, item in items:
            if isinstance(item, Dropped):
                self.dropped[item.reason] += 1
            if not isinstance(item, Impression):
                continue
            name = scoped(item.id, item.key)
            if name in seen:
                self.dropped[DUPLICATE] += 1
                continue
            try:
                check_texts(item)
                self.unchecked += is_signed(item.id) and not self.secret
                places.add(as_proved(item, self.secret))
            except REFUSALS as error:
                self.dropped[refused(error).reason] += 1
                continue
            seen.add(name)
        return places.result()


def as_document(found: PositionBias) -> dict[str, Any]:
    """Plain data for JSON; what is not known is null."""
    counts = ("lists", "without_click", "explored", "drafted", "shuffled", "by_chance", "pairs", "moved")
    taken = found.taken
    return {
        "method": found.method,
        "refused": found.refused or None,
        "curve": None if taken is None else _numbers(taken.curve),
        "error": None if taken is None else _numbers(taken.error),
        "shown": found.shown.tolist(),
        "clicks": found.clicks.tolist(),
        **{name: getattr(found, name) for name in counts},
        "moved_click_share": found.moved_share,
        "by_method": {
            name: {
                "curve": _numbers(one.curve),
                "error": _numbers(one.error),
                "clicks": one.clicks,
                "refused": one.refused or None,
            }
            for name, one in (("chance", found.chance), ("moves", found.moves))
        },
    }


def _numbers(values: Iterable[float]) -> list[float | None]:
    return [float(one) if np.isfinite(one) else None for one in values]
