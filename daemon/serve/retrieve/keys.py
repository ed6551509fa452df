"""Models of single keys as they are searched: their forms and norms, made when a key is asked for."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from daemon.replica.view import View
from daemon.serve.items.snapshot import IndexSnapshot
from daemon.serve.query import NOT_LEARNED, OWN, UNKNOWN, VERSION_0, ByKey, Refused
from daemon.serve.retrieve.norms import Norms, Preparer
from daemon.versions.key_verdicts import KeyVerdicts
from daemon.versions.keyed_form import KeyedForm
from learners.quadratic import ServedForm

DIGESTS = 8
"""Names of models remembered for each that is held: a version that comes leaves most models as they were."""


class Observing(Protocol):
    """Hears of models made and of those that had to go."""

    def made(self, held: int) -> None:
        """A model was made; now so many are held."""

    def answered(self, model: str) -> None:
        """A query with a key is being answered, by its `OWN` model or by `VERSION_0`."""


@dataclass(slots=True, eq=False)
class _Held:
    """The form of one model, and its norms in the snapshot it was last searched in."""

    form: ServedForm
    norms: Norms | None = None


@dataclass(frozen=True, slots=True)
class KeySettings:
    """room: most models held. verdicts: those in force now. observe: hears what is made and asked."""

    room: int = 64
    verdicts: Callable[[], KeyVerdicts] = KeyVerdicts
    observe: Observing | None = None


KEY_SETTINGS = KeySettings()


class KeyModels:
    """The newest `room` models asked for; another one takes the place of who was not asked for longest.

    A model is known by the bytes of its arrays, so that one which a new version left as it was stays.
    Memory: per model its form, and one float32 per item. Any thread; one at a time makes a model.
    """

    def __init__(self, preparer: Preparer, settings: KeySettings) -> None:
        self._preparer, self._verdicts = preparer, settings.verdicts
        self._room, self._observe = settings.room, settings.observe
        self._held: OrderedDict[tuple[str, str], _Held] = OrderedDict()
        self._digests: OrderedDict[tuple[int, int, str], str] = OrderedDict()
        self._serials: frozenset[int] = frozenset()
        self._lock = threading.Lock()

    def choose(self, view: View, key: str, snapshot: IndexSnapshot) -> tuple[View | None, ByKey]:
        """The key's own model, its norms of this snapshot in `prepared`, and what is said of that; None where
        version 0 answers. Raises Refused where there is one model for all.
        """
        if not isinstance(view.form, KeyedForm):
            remedy = "leave key out; keys.slots makes a learner keep one model per key"
            raise Refused("no_keys", "one model answers everybody here", "key", remedy)
        with self._lock:
            chosen, why = self._chosen(view, view.form, key, snapshot)
        by = ByKey(key, VERSION_0 if chosen is None else OWN, why)
        if self._observe is not None:
            self._observe.answered(by.model)
        return chosen, by

    def _chosen(
        self, view: View, form: KeyedForm, key: str, snapshot: IndexSnapshot
    ) -> tuple[View | None, str | None]:
        if key not in form:
            return None, UNKNOWN
        if not self._verdicts().answers(key, view.model.version):
            return None, NOT_LEARNED
        held = self._of(view, form, key)
        self._forget_parts(snapshot)
        own = replace(view, form=held.form, formed=0, prepared=held.norms)  # the norms of a form never move
        if held.norms is None or not held.norms.cover(snapshot):
            held.norms = self._preparer.norms(own, snapshot, on_demand=True)
        return replace(own, prepared=held.norms), None

    def _of(self, view: View, form: KeyedForm, key: str) -> _Held:
        """The key's model of this version, made unless it is held."""
        at = (view.model.version, view.model.total, key)
        digest = self._digests.get(at)
        if digest is not None and (key, digest) in self._held:
            self._held.move_to_end((key, digest))
            self._digests.move_to_end(at)
            return self._held[key, digest]
        model = form.model_of(key)
        assert model is not None, "the key has a model"
        name = (key, model.digest)
        if name not in self._held:
            self._held[name] = _Held(model.form())
            while len(self._held) > self._room:
                self._held.popitem(last=False)
            if self._observe is not None:
                self._observe.made(len(self._held))
        self._held.move_to_end(name)
        self._digests[at] = model.digest
        while len(self._digests) > DIGESTS * self._room:
            self._digests.popitem(last=False)
        return self._held[name]

    def _forget_parts(self, snapshot: IndexSnapshot) -> None:
        """Let go of norms of other snapshots, which hold items that may be superseded."""
        serials = frozenset(part.serial for part in snapshot.parts)
        if serials == self._serials:
            return
        self._serials = serials
        for held in self._held.values():
            if held.norms is not None:
                held.norms = held.norms.within(snapshot)
