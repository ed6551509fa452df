"""Models of single keys as they are searched: with the norms of all items, made when a key is asked for."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from daemon.replica.keys import HOLD_S, HeldModel, KeyModels
from daemon.replica.view import View
from daemon.serve.items.snapshot import IndexSnapshot
from daemon.serve.query import OWN, VERSION_0, KeyChoice, QueryError
from daemon.serve.retrieve.norms import Preparer
from daemon.serve.retrieve.part import Norms
from daemon.versions.forms import KeyedForm
from daemon.versions.key_verdicts import KeyVerdicts

ROOM = 64


class Observing(Protocol):
    """Hears of models that are made and asked."""

    def made(self, held: int) -> None:
        """A model was made; now so many are held."""

    def answered(self, model: str) -> None:
        """Queries with a key are being answered, by its `OWN` model or by `VERSION_0`."""


@dataclass(frozen=True, slots=True)
class KeySettings:
    """room: most models held. hold_s: how long one answers behind a version before it is made anew. verdicts:
    those in force now. observe: hears what is made and asked."""

    room: int = ROOM
    hold_s: float = HOLD_S
    verdicts: Callable[[], KeyVerdicts] = KeyVerdicts
    observe: Observing | None = None


KEY_SETTINGS = KeySettings()


class KeySearch:
    """Finds the model that a key is answered by. Memory: of each of `room` models its form, and one float32
    per item. Any thread; one at a time computes norms.
    """

    def __init__(self, preparer: Preparer, settings: KeySettings) -> None:
        self._preparer, self._observe = preparer, settings.observe
        made = (lambda held: None) if settings.observe is None else settings.observe.made
        self._models = KeyModels(settings.verdicts, settings.room, made, hold_s=settings.hold_s)
        self._serials: frozenset[int] = frozenset()
        self._lock = threading.Lock()

    def choose(self, view: View, key: str, snapshot: IndexSnapshot) -> tuple[View | None, KeyChoice]:
        """The key's own model, its norms of this snapshot in `prepared`, and what is said of that; None where
        version 0 answers. Raises Refused where there is one model for all.
        """
        if not isinstance(view.form, KeyedForm):
            remedy = "leave key out; keys.slots makes a learner keep one model per key"
            raise QueryError("no_keys", "one model answers everybody here", "key", remedy)
        found = self._models.choose(view, key)
        if isinstance(found, str):
            chosen, by = None, KeyChoice(key, VERSION_0, found, None)
        else:
            chosen, by = self._ready(view, found.model, snapshot), KeyChoice(key, OWN, None, found.formed)
        if self._observe is not None:
            self._observe.answered(by.model)
        return chosen, by

    def _ready(self, view: View, model: HeldModel, snapshot: IndexSnapshot) -> View:
        with self._lock:
            self._forget_parts(snapshot)
            own = replace(view, form=model.form, formed=0, prepared=model.prepared)  # one form, one `formed`
            if model.prepared is None or not model.prepared.cover(snapshot):
                began = time.monotonic()
                model.prepared = self._preparer.norms(own, snapshot, on_demand=True)
                model.seconds += time.monotonic() - began
            return replace(own, prepared=model.prepared)

    def _forget_parts(self, snapshot: IndexSnapshot) -> None:
        """Let go of norms of parts that are gone: they hold the items they were made of."""
        serials = frozenset(part.serial for part in snapshot.parts)
        if serials != self._serials:
            self._serials = serials
            for model in self._models.held():
                if isinstance(model.prepared, Norms):
                    model.prepared = model.prepared.within(snapshot)
