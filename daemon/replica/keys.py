"""Models of single keys out of a followed version, by their verdicts; forms are made when a key is asked."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from checkpoints.entries import LedgerEntry
from daemon.replica.view import View
from daemon.versions.forms import KeyedForm
from daemon.versions.key_verdicts import KeyVerdicts
from learners.forms.quadratic import ServedForm

UNKNOWN: Final = "unknown_key"
NOT_LEARNED: Final = "not_learned"
"""Why version 0 answers: the key has no model; its verdict, see `KeyVerdicts.answers`."""

DIGESTS = 8
"""Names of models remembered for each one held: a new version leaves most models as they were."""


HOLD_S, SHARE = 1.0, 0.25
"""Behind a version: for how long a model answers at least before it is recomputed, and the share of a core
that recomputing all held models may take. Models that take long are held longer."""


@dataclass(slots=True, eq=False)
class HeldModel:
    """One key's form, of arrays of its own, and what was prepared of it: any thing of who searches, the same
    in every version that leaves the model as it is. seconds: what making both took.
    """

    form: ServedForm
    prepared: Any = None
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class ChosenModel:
    """formed: records since version 0 at which the model was as it answers."""

    model: HeldModel
    formed: int


@dataclass(frozen=True, slots=True)
class _Newest:
    """What a key's model was last: its name, after how many records, and when that was seen."""

    name: tuple[str, str]
    total: int
    at: float


class KeyModels:
    """The newest `room` models asked for; another one takes the place of who was not asked for longest.

    A model is known by the bytes of its arrays, so that one which a new version left as it was stays. Behind
    a version, where every step may change a model, it answers as it was for a while. Any thread; one at a
    time makes a model. made: called with how many are held when one was made.
    """

    def __init__(
        self,
        verdicts: Callable[[], KeyVerdicts],
        room: int,
        made: Callable[[int], None] = lambda held: None,
        *,
        hold_s: float = HOLD_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._verdicts, self._room, self._made = verdicts, room, made
        self._hold_s, self._clock = hold_s, clock
        self._held: OrderedDict[tuple[str, str], HeldModel] = OrderedDict()
        self._digests: OrderedDict[tuple[int, int, str], str] = OrderedDict()
        self._newest: dict[str, _Newest] = {}
        self._lock = threading.Lock()

    def choose(self, view: View, key: str) -> ChosenModel | Literal["unknown_key", "not_learned"]:
        """The key's own model in a version with one per key, else why version 0 answers."""
        form = view.form
        assert isinstance(form, KeyedForm), "the view is of a version with one model per key"
        if key not in form:
            return UNKNOWN
        if not self._verdicts().answers(key, view.model.version):
            return NOT_LEARNED
        with self._lock:
            return self._kept(view, key) or self._of(view, form, key)

    def held(self) -> list[HeldModel]:
        """All of them now."""
        with self._lock:
            return list(self._held.values())

    def _kept(self, view: View, key: str) -> ChosenModel | None:
        newest = self._newest.get(key)
        if not view.model.behind or newest is None or newest.total > view.model.total:
            return None
        model = self._held[newest.name]
        hold_s = max(self._hold_s, model.seconds * len(self._held) / SHARE)
        if self._clock() - newest.at >= hold_s:
            return None
        self._held.move_to_end(newest.name)
        return ChosenModel(model, newest.total)

    def _of(self, view: View, form: KeyedForm, key: str) -> ChosenModel:
        total = view.model.total
        at = (view.model.version, total, key)
        digest = self._digests.get(at)
        if digest is None or (key, digest) not in self._held:
            digest = self._make(form, key)
        name = key, digest
        self._held.move_to_end(name)
        self._digests[at] = digest
        self._digests.move_to_end(at)
        while len(self._digests) > DIGESTS * self._room:
            self._digests.popitem(last=False)
        self._newest[key] = _Newest(name, total, self._clock())
        return ChosenModel(self._held[name], total)

    def _make(self, form: KeyedForm, key: str) -> str:
        """Hold the key's model as it is now; its digest."""
        began, model = self._clock(), form.model_of(key)
        assert model is not None, "the key has a model"
        name = key, model.digest
        if name not in self._held:
            held = self._held[name] = HeldModel(model.form())
            held.seconds = self._clock() - began
            while len(self._held) > self._room:
                gone, _ = self._held.popitem(last=False)
                if gone[0] in self._newest and self._newest[gone[0]].name == gone:
                    del self._newest[gone[0]]
            self._made(len(self._held))
        return model.digest


class SeenVerdicts:
    """Taken from the ledger at every look, folded again only when it has grown. Any thread."""

    def __init__(self) -> None:
        self._seen: tuple[int, int] = (0, 0)
        self._now = KeyVerdicts()

    def take(self, entries: Sequence[LedgerEntry]) -> None:
        """The ledger as it stands, ascending."""
        seen = (len(entries), entries[-1].n if entries else 0)
        if seen != self._seen:
            self._now, self._seen = KeyVerdicts.of(entries), seen

    def now(self) -> KeyVerdicts:
        """The verdicts in force now."""
        return self._now
