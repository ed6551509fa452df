"""Models of single keys out of a followed version: chosen by their verdicts, their forms made when a key is
asked for.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from daemon.replica.view import View
from daemon.versions.key_verdicts import KeyVerdicts
from daemon.versions.keyed_form import KeyedForm
from learners.quadratic import ServedForm

UNKNOWN, NOT_LEARNED = "unknown_key", "not_learned"
"""Why version 0 answers: the key has no model; its verdict, see `KeyVerdicts.answers`."""

DIGESTS = 8
"""Names of models remembered for each that is held: a version that comes leaves most models as they were."""


@dataclass(slots=True, eq=False)
class HeldModel:
    """One key's form, of arrays of its own, and what was prepared of it: any thing of who searches, the same
    in every version that leaves the model as it is.
    """

    form: ServedForm
    prepared: Any = None


class KeyModels:
    """The newest `room` models asked for; another one takes the place of who was not asked for longest.

    A model is known by the bytes of its arrays, so that one which a new version left as it was stays. Any
    thread; one at a time makes a model. made: told how many are held when one was made.
    """

    def __init__(
        self, verdicts: Callable[[], KeyVerdicts], room: int, made: Callable[[int], None] = lambda held: None
    ) -> None:
        self._verdicts, self._room, self._made = verdicts, room, made
        self._held: OrderedDict[tuple[str, str], HeldModel] = OrderedDict()
        self._digests: OrderedDict[tuple[int, int, str], str] = OrderedDict()
        self._lock = threading.Lock()

    def choose(self, view: View, key: str) -> HeldModel | str:
        """The key's own model in a version with one per key, else why version 0 answers."""
        form = view.form
        assert isinstance(form, KeyedForm), "the view is of a version with one model per key"
        if key not in form:
            return UNKNOWN
        if not self._verdicts().answers(key, view.model.version):
            return NOT_LEARNED
        with self._lock:
            return self._of(view, form, key)

    def held(self) -> list[HeldModel]:
        """All of them now."""
        with self._lock:
            return list(self._held.values())

    def _of(self, view: View, form: KeyedForm, key: str) -> HeldModel:
        """The key's model of this version, made unless it is held."""
        at = (view.model.version, view.model.total, key)
        digest = self._digests.get(at)
        if digest is None or (key, digest) not in self._held:
            digest = self._make(form, key)
        self._held.move_to_end((key, digest))
        self._digests[at] = digest
        self._digests.move_to_end(at)
        while len(self._digests) > DIGESTS * self._room:
            self._digests.popitem(last=False)
        return self._held[key, digest]

    def _make(self, form: KeyedForm, key: str) -> str:
        """Hold the key's model as it is now; its digest."""
        model = form.model_of(key)
        assert model is not None, "the key has a model"
        if (key, model.digest) not in self._held:
            self._held[key, model.digest] = HeldModel(model.form())
            while len(self._held) > self._room:
                self._held.popitem(last=False)
            self._made(len(self._held))
        return model.digest
