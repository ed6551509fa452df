"""Keeps graphs of the objects that are served: adopts those on disk, has new ones built by a process of low
priority, and replaces what has grown old; answers go on meanwhile with what is there.

Several servers may share a folder. One of them builds, behind a lock; the others take what it built, since a
graph is recognised by the content of its objects.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
import structlog
from numpy.lib.format import open_memmap

from daemon.runtime.watchdog import BackgroundThread, give_way
from daemon.serve.items.snapshot import IndexPart, IndexSnapshot
from daemon.serve.retrieve import graph_files as files
from daemon.serve.retrieve.coverage import (
    Coverage,
    Covered,
    GraphState,
    NamedGraph,
    plan,
    rows_to_build,
    states_of,
)
from learners.block import DenseBlock, Int64s
from learners.graph import code_rows, hashes_of
from learners.kernels.intrinsics import STRIDE
from streams.durable import is_locked

LOOK_S = 0.5
AFTER_FAILURE_S = 30.0
"""Until a build that failed is tried again."""
ROWS = 2_048
"""Rows coded at once: some milliseconds."""
OLD_S = 14 * 24 * 3600.0
"""A graph that matches nothing goes after this long: another server may still want it."""
LOCK = "building.lock"

log = structlog.get_logger("tripletd.serve")


@dataclass(frozen=True, slots=True)
class GraphStatus:
    """How the graphs stand. graphs: each with its rows and living objects. tail: living objects in none.
    building: objects of the graph that is being built, 0 for none. built, damaged, failed: since the start.
    seconds: what the last build took. nbytes: memory of all, mapped files included.
    """

    graphs: tuple[GraphState, ...] = ()
    tail: int = 0
    building: int = 0
    built: int = 0
    adopted: int = 0
    damaged: int = 0
    failed: int = 0
    seconds: float = 0.0
    nbytes: int = 0


class GraphKeeper(BackgroundThread):
    """Looks after the graphs of one catalog. `covered` may be asked from any thread.

    root: folders to keep graphs in, the first that can be written is taken; without any a temporary one.
    snapshot: the newest state of the catalog. least: objects from which on graphs are worth it. changed:
    called when other graphs are there.
    """

    name = "graphs"

    def __init__(
        self,
        roots: Sequence[Path],
        snapshot: Callable[[], IndexSnapshot],
        least: int,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__()
        self._roots = list(roots)
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._snapshot, self._least, self._changed = snapshot, least, changed
        self._coverage, self._lock = Coverage(), threading.Lock()
        self._graphs: dict[str, NamedGraph] = {}
        self._refused: set[str] = set()
        self._closing = threading.Event()
        self._try_at = 0.0
        self._child: subprocess.Popen[bytes] | None = None
        self._built = self._adopted = self._damaged = self._failed = self._building = 0
        self._seconds = 0.0
        self._looked: tuple[int, tuple[str, ...]] | None = None
        self._status = GraphStatus()

    def covered(self, snapshot: IndexSnapshot) -> Covered:
        """Where the objects of a snapshot are in the graphs that are there."""
        with self._lock:
            return self._coverage.of(snapshot)

    def status(self) -> GraphStatus:
        """How they stand; cheap."""
        return self._status

    def stop(self) -> None:
        """Look no longer, and end what is being built."""
        self._closing.set()
        child = self._child
        if child is not None:
            with suppress(OSError):
                child.kill()

    def look(self) -> bool:
        """Adopt what is there, and build what is due; whether anything changed. One thread at a time."""
        changed = self._adopt()
        snapshot = self._snapshot()
        seen = (snapshot.serial, tuple(self._graphs))
        if seen != self._looked or changed:
            self._looked = seen
            states, tail = states_of(self.covered(snapshot), snapshot)
            self._tell(states, tail)
        due = plan(self._status.graphs, self._status.tail, self._least)
        if due is not None and time.monotonic() >= self._try_at:
            root = self._place()
            with (root / LOCK).open("ab") as lock:
                if is_locked(lock):  # held until the end, or the end of the process
                    changed |= self._adopt()
                    changed |= self._build(root, due.instead_of)
        if changed:
            snapshot = self._snapshot()
            self._tell(*states_of(self.covered(snapshot), snapshot))
            self._changed()
        return changed

    def _run(self) -> None:
        give_way(10)
        while not self._closing.is_set():
            try:
                self.look()
            except Exception:  # whatever it is, search goes on without
                log.exception("graphs cannot be looked after; trying again")
                self._failed += 1
                self._closing.wait(AFTER_FAILURE_S)
            self._closing.wait(LOOK_S)
        if self._temporary is not None:
            self._temporary.cleanup()

    def _place(self) -> Path:
        for root in self._roots:
            with suppress(OSError):
                root.mkdir(parents=True, exist_ok=True)
                if os.access(root, os.W_OK):
                    return root
        self._temporary = tempfile.TemporaryDirectory(prefix="tripletd-graphs-")
        self._roots.append(Path(self._temporary.name))
        return self._roots[-1]

    def _rest(self) -> None:
        """Between two pieces of work: half of the time is left to those who answer."""
        if self._closing.wait(0.002):
            raise _Closing

    def _adopt(self) -> bool:
        """Take in graphs that appeared in the folder, and let go of those that went; whether any did."""
        there = {folder.name: folder for root in self._roots for folder in files.graphs_in(root)}
        gone = [name for name in self._graphs if name not in there]
        found = False
        for name, folder in there.items():
            if name in self._graphs or name in self._refused:
                continue
            found |= self._take(folder)
        if gone and (found or not self._graphs.keys() - set(gone)):
            for name in gone:  # what is mapped would still be right; but whoever removed it has a better one
                del self._graphs[name]
            found = True
        if found:
            self._use()
        return found

    def _take(self, folder: Path) -> bool:
        snapshot = self._snapshot()
        try:
            if files.map_of(folder) != snapshot.map_id:
                self._refused.add(folder.name)
                return False
            graph = files.load(folder, self._rest)
        except files.DamagedGraph as error:
            if folder.exists():
                self._damaged += 1
                log.warning(
                    "a graph on disk is damaged and will be built again", folder=str(folder), why=str(error)
                )
                files.remove(folder)
            return False
        except _Closing:
            return False
        named = NamedGraph.of(folder.name, graph)
        state = _alone(named, snapshot)
        if 2 * state.living < state.rows:
            self._refused.add(folder.name)  # of other objects, or of those that there were long ago
            return False
        with suppress(OSError):
            os.utime(folder)
        self._graphs[folder.name] = named
        self._adopted += 1
        return True

    def _use(self) -> None:
        with self._lock:
            self._coverage.use([self._graphs[name] for name in sorted(self._graphs)])

    def _build(self, root: Path, instead_of: frozenset[str]) -> bool:
        """Build one graph, and remove those that it stands for; whether there is a new one."""
        snapshot = self._snapshot()
        chosen = rows_to_build(self.covered(snapshot), snapshot, instead_of)
        count = sum(len(rows) for _, rows in chosen)
        if not count:
            return False
        for folder in files.half_written(root):
            files.remove(folder)
        began = time.monotonic()
        folder = Path(tempfile.mkdtemp(prefix=files.UNDER_WAY, dir=root))
        self._building = count
        self._tell(self._status.graphs, self._status.tail)
        try:
            _write(folder, chosen, self._rest)
            self._link(folder)
            target = root / f"{files.DONE}{time.time_ns():020d}-{count}"
            files.seal(folder, target, map_id=snapshot.map_id, rest=self._rest)
        except _Closing:
            files.remove(folder)
            return False
        except (OSError, _BuildFailed) as error:
            files.remove(folder)
            self._failed += 1
            self._try_at = time.monotonic() + AFTER_FAILURE_S
            log.warning("a graph could not be built; search stays as it is", objects=count, why=str(error))
            self._tell(self._status.graphs, self._status.tail)
            return False
        finally:
            self._building = 0
        if not self._take(target):
            return False
        self._adopted -= 1
        self._built += 1
        self._seconds = time.monotonic() - began
        log.info(
            "a graph was built", objects=count, seconds=round(self._seconds, 1), instead_of=len(instead_of)
        )
        for name in instead_of:
            self._graphs.pop(name, None)
            for place in self._roots:
                files.remove(place / name)
        self._use()
        self._tidy(root)
        return True

    def _link(self, folder: Path) -> None:
        """Have the links made. Raises _BuildFailed or _Closing."""
        command = [sys.executable, "-m", "daemon.serve.graph_build", str(folder)]
        with tempfile.TemporaryFile() as said:
            self._child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
            try:
                code = None
                while code is None:
                    if self._closing.is_set():
                        raise _Closing
                    with suppress(subprocess.TimeoutExpired):
                        code = self._child.wait(0.2)
            finally:
                if self._child.poll() is None:
                    self._child.kill()
                    self._child.wait()
                self._child = None
            if code:
                raise _BuildFailed(f"its process ended with {code}: {_last_line(said)}")

    def _tidy(self, root: Path) -> None:
        for folder in files.graphs_in(root):
            with suppress(OSError):
                if folder.name in self._refused and time.time() - folder.stat().st_mtime > OLD_S:
                    files.remove(folder)

    def _tell(self, states: Sequence[GraphState], tail: int) -> None:
        nbytes = sum(one.graph.nbytes for one in self._graphs.values())
        counts = (self._built, self._adopted, self._damaged, self._failed)
        self._status = GraphStatus(tuple(states), tail, self._building, *counts, self._seconds, nbytes)


class _Closing(Exception):
    """The server ends."""


class _BuildFailed(Exception):
    """Links were not made; the message says why."""


def _alone(named: NamedGraph, snapshot: IndexSnapshot) -> GraphState:
    coverage = Coverage()
    coverage.use([named])
    return states_of(coverage.of(snapshot), snapshot)[0][0]


def _write(folder: Path, chosen: Sequence[tuple[IndexPart, Int64s]], rest: Callable[[], None]) -> None:
    """Codes, bounds and hashes of these rows, in order."""
    count, dim = sum(len(rows) for _, rows in chosen), chosen[0][0].vectors.dim
    shapes = {"codes": (count, -(-dim // STRIDE) * STRIDE), "bounds": (count, 3), "hashes": (count,)}
    arrays = {
        name: open_memmap(folder / f"{name}.npy", "w+", np.dtype(files.TYPES[name]), shape)
        for name, shape in shapes.items()
    }
    at = 0
    for part, rows in chosen:
        assert isinstance(part.vectors, DenseBlock)
        for first in range(0, len(rows), ROWS):
            values = part.vectors.values[rows[first : first + ROWS]]
            here = slice(at, at + len(values))
            arrays["codes"][here], arrays["bounds"][here] = code_rows(values)
            arrays["hashes"][here] = hashes_of(values)
            at += len(values)
            rest()
    for array in arrays.values():
        array.flush()


def _last_line(said: IO[bytes]) -> str:
    said.seek(0)
    lines = said.read()[-2000:].decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it said nothing"
