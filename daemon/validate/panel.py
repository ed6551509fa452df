"""A window prepared for judging: what is the same for every version judged on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from daemon.validate.lists import ShownLists, shown_lists, stable_order
from daemon.validate.measures import Mask, Rows
from daemon.validate.objects import MappedObjects
from streams.event import Impression, ObjectRef


@dataclass(frozen=True, slots=True)
class Panel:
    """n impressions with the impressions of one query side by side, queries in a stable order.

    order: int64[n], place of each in the sequence it was made from. lists: their padded arrays [n, L].
    shown: int64[n, L], catalog row of each shown object by its id, -1 without one. inline: bool[n, L],
    whether it brought features of its own. query: int64[n], the query's catalog row or -1. group: int64[n],
    ascending, number of the distinct query. queries: each distinct query as it was sent last.
    """

    impressions: Sequence[Impression]
    order: Rows
    lists: ShownLists
    shown: Rows
    inline: Mask
    query: Rows
    group: Rows
    queries: Sequence[ObjectRef]

    def __len__(self) -> int:
        return len(self.impressions)


def make_panel(objects: MappedObjects, impressions: Sequence[Impression]) -> Panel:
    """Prepare impressions, oldest first."""
    keys = [_key(impression) for impression in impressions]
    places = {key: n for n, key in enumerate(sorted(set(keys), key=stable_order))}
    groups = np.array([places[key] for key in keys], np.int64)
    order = np.argsort(groups, kind="stable").astype(np.int64)
    ordered = [impressions[place] for place in order.tolist()]
    lists = shown_lists(ordered)
    shown, inline = np.full(lists.valid.shape, -1, np.int64), np.zeros(lists.valid.shape, bool)
    rows = [objects.row_of(ref) for one in ordered for ref in one.shown]
    shown[lists.valid] = [-1 if row is None else row for row in rows]
    inline[lists.valid] = [ref.features() is not None for one in ordered for ref in one.shown]
    query = [objects.row_of(one.query) for one in ordered]
    newest = {int(group): one.query for group, one in zip(groups[order], ordered, strict=True)}
    return Panel(
        ordered,
        order,
        lists,
        shown,
        inline,
        np.array([-1 if row is None else row for row in query], np.int64),
        groups[order],
        [newest[group] for group in range(len(places))],
    )


def _key(impression: Impression) -> str:
    """What makes queries the same: the id, or nothing. An id never starts with a control character."""
    return impression.query.id if impression.query.id is not None else f"\0{impression.id}"
