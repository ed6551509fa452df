"""Lists made by chance as the role makes them: objects of the live catalog, ids signed with its key."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from daemon.serve.interleave import Drawn, MadeList
from daemon.serve.items.snapshot import IndexSnapshot
from daemon.serve.query import Query
from daemon.serve.retrieve.finding import draw
from streams.event import Draft, DraftModel, ObjectRef, SparseVector, Vector
from streams.signed_lists import NONCE_BYTES, SignedList, sign_list


class SignedLists:
    """Random choices, and ids that `feed` can check.

    secret: what ids are signed with. snapshot: gives the catalog now, None before there is one. explore:
    random objects per list where a request does not say. below: where chance comes from, the system's own
    source, so that nobody who sees lists can foresee the next one. now_ms: the wall clock.
    """

    def __init__(
        self,
        secret: bytes,
        snapshot: Callable[[], IndexSnapshot | None],
        explore: int = 0,
        *,
        below: Callable[[int], int] = secrets.randbelow,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._secret, self._snapshot = secret, snapshot
        self._explore, self._below, self._now_ms = explore, below, now_ms

    @property
    def explore(self) -> int:
        """Random objects per list where a request does not say, 0 or 1."""
        return self._explore

    def coin(self) -> bool:
        """Either, each as likely."""
        return self._below(2) == 1

    def slot(self, places: int) -> int:
        """One of so many places, each as likely."""
        return self._below(places)

    def draw(self, query: Query, left_out: Sequence[str]) -> Drawn | None:
        """An object that the query's filters allow and that is not left out, each as likely."""
        snapshot = self._snapshot()
        return None if snapshot is None else draw(snapshot, query, left_out, self._below)

    def sign(self, query: Query, made: MadeList) -> str:
        """The list's signed id. Raises ValueError for a list too long for one."""
        slot = next((rank for rank, place in enumerate(made.places) if place.explored), None)
        models = tuple(DraftModel(name, model.version, model.total) for name, model in made.models)
        chance = None if slot is None else made.places[slot].propensity
        draft = Draft(models, tuple(place.team for place in made.places), slot, chance)
        return sign_list(
            self._secret,
            SignedList(self._now_ms(), draft),
            asked_object(query),
            [place.hit.id for place in made.places],
            key=query.key,
            eligible=made.eligible,
            nonce=secrets.token_bytes(NONCE_BYTES),
        )


def asked_object(query: Query) -> ObjectRef:
    """The object that an answered query asks about, as a click log would hold it."""
    if query.id is not None:
        return ObjectRef(query.id)
    if query.views is None:
        return ObjectRef(x=_vector(query.x))
    return ObjectRef(views={name: _vector(raw) for name, raw in query.views.items()})


def _vector(raw: Any) -> Vector:
    if isinstance(raw, Mapping):
        return SparseVector(np.array(raw["indices"], np.int32), np.array(raw["values"], np.float32))
    return np.array(raw, np.float32)
