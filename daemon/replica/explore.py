"""A cache of versions by number, for looking at others than the served one: few, loaded when needed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from daemon.replica.buffers import ModelBuffer
from daemon.replica.form_updates import form_updater_of
from daemon.replica.loading import Arrays, BufferArrays, VersionRejected, load_form, load_state
from daemon.replica.settings import Hooks, VersionSource
from daemon.replica.view import NotServing, View

HOOKS = Hooks()


@dataclass(slots=True, eq=False)
class _Slot:
    """Buffers for one version: which one is there, how many read it, and when it was last asked for."""

    side: ModelBuffer
    number: int | None = None
    readers: int = 0
    asked: int = 0


class VersionCache:
    """Opens any version by number; at most `room` stay open, the one not asked for longest goes first.

    Memory: per open version its state and, where its form is a matrix, that; allocated when first needed and
    kept.
    """

    def __init__(self, source: VersionSource, hooks: Hooks = HOOKS, room: int = 2) -> None:
        self._source, self._hooks, self._room = source, hooks, room
        self._slots: list[_Slot] = []
        self._loading, self._counting = threading.Lock(), threading.Lock()
        self._asked = 0

    @contextmanager
    def read(self, number: int) -> Iterator[View]:
        """The version's model. Loads it when it is not open, in the caller's thread (seconds).

        Raises NotServing with the reason when there is no such version, it is refused, or all places are
        being read.
        """
        with self._held(number) as slot:
            assert slot.side.view is not None
            yield slot.side.view

    @contextmanager
    def read_state(self, number: int) -> Iterator[tuple[View, Arrays]]:
        """The same, with the learner's arrays that it was made from, only to be read."""
        with self._held(number) as slot:
            assert slot.side.view is not None
            yield slot.side.view, slot.side.buffers.state

    def is_open(self, number: int) -> bool:
        """Whether to read that version costs no loading now."""
        return any(slot.number == number for slot in list(self._slots))

    @contextmanager
    def _held(self, number: int) -> Iterator[_Slot]:
        with self._loading:  # one load at a time; who is done reading does not wait for it
            slot = self._slot(number)
            with self._counting:
                slot.readers += 1
        try:
            yield slot
        finally:
            with self._counting:
                slot.readers -= 1

    def _slot(self, number: int) -> _Slot:
        slot = next((one for one in self._slots if one.number == number), None) or self._opened(number)
        self._asked += 1
        slot.asked = self._asked
        return slot

    def _opened(self, number: int) -> _Slot:
        slot = self._free()
        slot.number = None
        try:
            state = load_state(self._source, number, slot.side.buffers)
            form = load_form(self._source, state, slot.side.buffers)
        except VersionRejected as refused:
            raise NotServing(f"version {number} cannot be opened: {refused}") from refused
        view = slot.side.take_version(state, form, self._source.space.map_id, 0)
        slot.side.view, slot.number = replace(view, prepared=self._hooks.prepare(view)), number
        return slot

    def _free(self) -> _Slot:
        if len(self._slots) < self._room:
            space, serving = self._source.space, self._source.serving
            self._slots.append(
                _Slot(ModelBuffer(BufferArrays.of(space, serving), form_updater_of(self._source)))
            )
        unread = [slot for slot in self._slots if slot.readers == 0]
        if not unread:
            raise NotServing(f"{self._room} other versions are being looked at: ask again")
        return min(unread, key=lambda slot: slot.asked)
