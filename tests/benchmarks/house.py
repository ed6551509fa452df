"""`python -m tests.benchmarks.house [--tree FOLDER]`: how far one has to walk in the product's code.

Counts of the tree: modules, lines, class names with two meanings, lines of the README. And, by profiler, the
product files that four flows enter: one event from its poll to W, the start of `learn`, one GET of
/v1/similar, and one version being judged. Each flow runs in a process of its own, started through the command
line, so that nothing here knows how the product is cut inside: only its commands, keys, metrics and the names
`poll` and `learn_many` are relied on.

Functions that run while a module is imported are not counted, nor are compiled kernels. Exits with 1 when a
bar is missed.
"""

from __future__ import annotations

import argparse
import ast
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

PACKAGES = ("daemon", "streams", "learners", "checkpoints")
CO_OPTIMIZED = 1  # of a code object: a function, not the body of a module or class
DIM, OBJECTS, LISTS = 12, 60, 300
IDLE_S = 0.05  # a thread that enters nothing for this long waits
GETS = 12
WAIT_S = 180.0

BARS = {
    "modules": 320,
    "modules of daemon": 165,
    "lines": 54_000,
    "class names defined twice": 0,
    "README lines": 160,
    "files: event to W": 30,
    "files: start of learn": 65,
    "files: GET /v1/similar": 22,
    "files: judging a version": 50,
}


# -- counts of the tree ------------------------------------------------------------------------------------


def counts(tree: Path) -> dict[str, int]:
    """What can be counted without running anything."""
    files = [path for package in PACKAGES for path in sorted((tree / package).rglob("*.py"))]
    modules = [path for path in files if path.name != "__init__.py"]
    return {
        "modules": len(modules),
        "modules of daemon": sum((tree / "daemon") in path.parents for path in modules),
        "lines": sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files),
        "class names defined twice": len(names_defined_twice(files)),
        "README lines": len((tree / "README.md").read_text(encoding="utf-8").splitlines()),
    }


def names_defined_twice(files: Sequence[Path]) -> list[str]:
    """Names of classes that another module has too at its top level: for a class, or for a type of another
    kind (an alias, a type variable)."""
    classes: Counter[str] = Counter()
    types: Counter[str] = Counter()
    for path in files:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                classes[node.name] += 1
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                types.update(one.id for one in targets if isinstance(one, ast.Name))
    return sorted(name for name, times in classes.items() if times + types[name] > 1)


# -- which files a flow enters -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Entry:
    """One function entered: when (seconds), by which thread, in which file (relative), under which name."""

    at: float
    thread: int
    file: str
    name: str


class Recorder:
    """Writes down every function of the product that any thread enters, from `install` on."""

    def __init__(self, tree: Path) -> None:
        self._prefix = f"{tree}{os.sep}"
        self._known: dict[str, str | None] = {}
        self._importing: dict[int, int] = {}  # per thread: bodies of modules under way
        self.entries: list[Entry] = []

    def install(self) -> None:
        """Record this thread, and those that start from now on."""
        threading.setprofile(self._record)
        sys.setprofile(self._record)

    def _record(self, frame: FrameType, event: str, argument: Any) -> None:
        if event not in ("call", "return"):
            return
        code, thread = frame.f_code, threading.get_ident()
        if not code.co_flags & CO_OPTIMIZED:
            step = 1 if event == "call" else -1
            self._importing[thread] = self._importing.get(thread, 0) + step
            return
        if event == "return" or self._importing.get(thread):
            return
        name = code.co_filename
        if name not in self._known:
            inside = name.removeprefix(self._prefix)
            ours = inside != name and inside.split(os.sep)[0] in PACKAGES
            self._known[name] = inside if ours else None
        file = self._known[name]
        if file is not None:
            self.entries.append(Entry(time.perf_counter(), thread, file, code.co_name))

    def since(self, start: int) -> list[Entry]:
        """What was entered after the first `start` entries."""
        return self.entries[start:]


def files_of(entries: Sequence[Entry]) -> list[str]:
    """The distinct files, in the order in which they were first entered."""
    return list(dict.fromkeys(entry.file for entry in entries))


# -- the place in which the flows run ----------------------------------------------------------------------


class Place:
    """A folder with a configuration, a catalog, clicks and free ports; commands of `tree` run in it."""

    def __init__(self, folder: Path, tree: Path) -> None:
        self.folder, self.tree = folder, tree

    def fill(self) -> None:
        """Write everything."""
        rng = np.random.default_rng(5)
        ports = {role: _free_port() for role in ("learn", "validate", "serve")}
        (self.folder / "ports.json").write_text(json.dumps(ports))
        listed = "\n".join(f"{role}_port = {port}" for role, port in ports.items())
        (self.folder / "tripletd.toml").write_text(
            f'[stream]\naddress = "log:clicks.log"\n[space.views.x]\nkind = "dense"\ndim = {DIM}\n'
            f'map = "standardise"\n[catalog]\npath = "items.jsonl"\n[checkpoints]\nevery = "1h"\n'
            f"[validate]\nmin_impressions = 5\n"
            f'[serve]\naliases = ["latest"]\n[http]\n{listed}\n'
        )
        rows = rng.normal(size=(OBJECTS, DIM)).round(4).tolist()
        _write_lines(self.folder / "items.jsonl", ({"id": f"o{n}", "x": row} for n, row in enumerate(rows)))
        self._lists("clicks.jsonl", rng, "a")
        self._lists("more.jsonl", rng, "b")
        _write_lines(self.folder / "one.jsonl", [{"id": "one", "q": "o1", "c": "o2", "s": "o3"}])

    def _lists(self, name: str, rng: np.random.Generator, prefix: str) -> None:
        made = []
        for n in range(LISTS):
            shown = [f"o{number}" for number in rng.choice(OBJECTS, 6, replace=False)]
            made.append({"id": f"{prefix}{n}", "ts": 1_700_000_000_000 + n, "q": f"o{n % OBJECTS}",
                         "shown": shown, "clicked": [int(rng.integers(1, 6))]})  # fmt: skip
        _write_lines(self.folder / name, made)

    def port(self, role: str) -> int:
        """Where a role answers."""
        return int(json.loads((self.folder / "ports.json").read_text())[role])

    def command(self, *words: str) -> None:
        """One command of the product, run to its end in a process of its own."""
        line = [sys.executable, "-P", "-m", "daemon", *words]
        done = subprocess.run(
            line, cwd=self.folder, env=environment(self.tree), capture_output=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{' '.join(words)}: {done.returncode}\n{done.stderr.decode()[-2000:]}")

    def metric(self, role: str, name: str) -> float:
        """The sum of a metric over its labels; 0 where there is none yet."""
        url = f"http://127.0.0.1:{self.port(role)}/metrics"
        with urllib.request.urlopen(url, timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        values = (line.rsplit(" ", 1) for line in lines if line.split("{")[0].split(" ")[0] == name)
        return sum(float(value) for _, value in values)

    def ready(self, role: str) -> bool:
        """Whether a role says so."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port(role)}/readyz", timeout=5):
                return True
        except OSError:
            return False


def environment(tree: Path) -> dict[str, str]:
    """Of the processes: one BLAS thread, and the tree that is measured."""
    return {**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def _write_lines(path: Path, objects: Any) -> None:
    path.write_text("".join(json.dumps(one) + "\n" for one in objects), encoding="utf-8")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _await(what: Callable[[], Any], why: str) -> Any:
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        try:
            found = what()
        except OSError:
            found = None
        if found:
            return found
        time.sleep(0.05)
    raise RuntimeError(f"waited in vain: {why}")


# -- the flows: each is run by a thread beside the role, which the profiler does not see --------------------


def event(place: Place, recorder: Recorder, main: int) -> list[str]:
    """One event: the poll that brought it, its way through the reader thread, and the turn of the loop."""
    _await(lambda: place.ready("learn"), "learn is ready")
    _await(lambda: place.metric("learn", "tripletd_events_total") > 0, "the first events are learned")
    flows = []
    for number in range(6):  # a turn that also looks at the ledger is no part of the way of an event
        time.sleep(1.5)
        start = len(recorder.entries)
        _write_lines(place.folder / "one.jsonl", [{"id": f"one{number}", "q": "o1", "c": "o2", "s": "o3"}])
        time.sleep(0.5)
        place.command("feed", "one.jsonl")
        _await(lambda: _at(recorder, start, main, "learn_many") is not None, "the event is learned")
        time.sleep(0.5)
        flows.append(_one_event(recorder.since(start), main))
    return min(flows, key=len)


def _at(recorder: Recorder, start: int, thread: int, name: str) -> int | None:
    found = (n for n, one in enumerate(recorder.since(start)) if one.thread == thread and one.name == name)
    return next(found, None)


def _one_event(entries: Sequence[Entry], main: int) -> list[str]:
    learned = next(n for n, one in enumerate(entries) if one.thread == main and one.name == "learn_many")
    polls = [one for one in entries if one.name == "poll" and one.file.startswith("streams")]
    reader = next(one.thread for one in polls if one.thread != main)
    read = [one for one in entries if one.thread == reader]
    starts = [n for n, one in enumerate(read) if one.name == "poll"]
    spans = [read[a:b] for a, b in zip(starts, [*starts[1:], len(read)], strict=True)]
    span = max((one for one in spans if one[0].at < entries[learned].at), key=lambda one: len(files_of(one)))
    mine = [one for one in entries if one.thread == main]
    waits = _waits(mine)
    place = mine.index(entries[learned])
    before = max(n for n in waits if n <= place)  # the first entry after the wait that brought the batch
    same = (mine[before - 1].file, mine[before - 1].name)  # where the loop waits
    begin = max(n for n in range(before - 1) if (mine[n].file, mine[n].name) == same)
    end = next(n for n in range(place, len(mine)) if (mine[n].file, mine[n].name) == same)
    return files_of([*span, *mine[begin + 1 : end + 1]])


def _waits(entries: Sequence[Entry]) -> list[int]:
    """Which entries came after a wait."""
    return [n for n in range(1, len(entries)) if entries[n].at - entries[n - 1].at > IDLE_S]


def start_of_learn(place: Place, recorder: Recorder, main: int) -> list[str]:
    """From the command to the first wait for events, by the main thread."""
    _await(lambda: place.ready("learn"), "learn is ready")
    time.sleep(1.5)
    mine = [one for one in recorder.since(0) if one.thread == main]
    last = mine[_waits(mine)[-1] - 1]
    end = next(n for n, one in enumerate(mine) if (one.file, one.name) == (last.file, last.name))
    return files_of(mine[: end + 1])


def get(place: Place, recorder: Recorder, main: int) -> list[str]:
    """One GET, by whichever threads; what only some of several GETs enter belongs to work beside them."""
    _await(lambda: place.ready("serve"), "serve is ready")
    time.sleep(1.0)
    shared: list[str] | None = None
    for n in range(GETS):
        connection = http.client.HTTPConnection("127.0.0.1", place.port("serve"), timeout=20)
        connection.connect()
        time.sleep(0.1 + 0.017 * n)
        start = len(recorder.entries)
        connection.request("GET", f"/v1/similar?id=o{n}&k=5")
        answer = connection.getresponse()
        answer.read()
        time.sleep(0.01)
        entered = files_of(recorder.since(start))
        connection.close()
        if answer.status != 200:
            raise RuntimeError(f"GET: {answer.status}")
        shared = entered if shared is None else [file for file in shared if file in entered]
    return shared or []


def judging(place: Place, recorder: Recorder, main: int) -> list[str]:
    """The validation loop from a new version and new impressions to the verdict, by the main thread."""
    judged = "tripletd_judged_versions_total"
    _await(lambda: place.metric("validate", judged) > 0 and place.ready("validate"), "validate is ready")
    time.sleep(2.0)
    before, start = place.metric("validate", judged), len(recorder.entries)
    place.command("feed", "more.jsonl")
    place.command("learn", "--exit-when-caught-up")
    _await(lambda: place.metric("validate", judged) > before, "the new version is judged")
    time.sleep(1.0)
    return files_of([one for one in recorder.since(start) if one.thread == main])


@dataclass(frozen=True)
class Flow:
    """One profiled flow: the role that runs, what it does beforehand, and what is looked at."""

    role: str
    prepare: tuple[tuple[str, ...], ...]
    look: Callable[[Place, Recorder, int], list[str]]


FEED, LEARN = ("feed", "clicks.jsonl"), ("learn", "--exit-when-caught-up")
FLOWS = {
    "files: event to W": Flow("learn", (FEED,), event),
    "files: start of learn": Flow("learn", (FEED, LEARN), start_of_learn),
    "files: GET /v1/similar": Flow("serve", (FEED, LEARN), get),
    "files: judging a version": Flow("validate", (FEED, LEARN), judging),
}


def entered(name: str, tree: Path) -> list[str]:
    """The files that a flow enters in `tree`."""
    flow = FLOWS[name]
    with tempfile.TemporaryDirectory(prefix="house-") as folder:
        place = Place(Path(folder), tree)
        place.fill()
        for words in flow.prepare:
            place.command(*words)
        line = [sys.executable, str(Path(__file__).resolve()), "--flow", name, "--tree", str(tree)]
        done = subprocess.run(line, cwd=folder, env=environment(tree), capture_output=True, check=False)
        result = Path(folder, "entered.json")
        if not result.exists():
            raise RuntimeError(f"{name}: {done.returncode}\n{done.stderr.decode()[-3000:]}")
        found: list[str] = json.loads(result.read_text())
    return found


def _compile(tree: Path) -> None:
    """Learn something once: what a new tree compiles is no part of a flow, and takes a minute."""
    with tempfile.TemporaryDirectory(prefix="house-") as folder:
        place = Place(Path(folder), tree)
        place.fill()
        place.command(*FEED)
        place.command(*LEARN)


def run_flow(name: str, tree: Path) -> None:
    """In the process of a flow: the role in this thread, as its command starts it; another thread looks."""
    here = Path(__file__).parent
    sys.path[:] = [str(tree), *(path for path in sys.path if Path(path or ".").resolve() != here)]
    flow, place, main = FLOWS[name], Place(Path.cwd(), tree), threading.get_ident()
    recorder = Recorder(tree)

    def look() -> None:
        try:
            found = flow.look(place, recorder, main)
            Path("entered.json").write_text(json.dumps(found))
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    looking = threading.Thread(target=look)
    looking.start()
    recorder.install()
    sys.argv = ["tripletd", flow.role]
    from daemon.__main__ import start

    try:
        start()
    finally:
        sys.setprofile(None)
        looking.join()


# -- the table ---------------------------------------------------------------------------------------------


def main() -> int:
    """Measure `--tree`, print the table; 1 when a bar is missed."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.house")
    parser.add_argument("--tree", type=Path, default=Path(__file__).resolve().parents[2])
    parser.add_argument("--json", action="store_true", help="as JSON, with the files that were entered")
    parser.add_argument("--counts", action="store_true", help="counts alone: a second, and nothing is run")
    parser.add_argument("--files", action="store_true", help="also the files that were entered, one per line")
    parser.add_argument("--only", help="flows whose name contains this")
    parser.add_argument("--flow", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    tree = arguments.tree.resolve()
    if arguments.flow:
        run_flow(arguments.flow, tree)
        return 0
    figures = counts(tree)
    files: dict[str, list[str]] = {}
    if not arguments.counts:
        _compile(tree)
    for name in () if arguments.counts else FLOWS:
        if not arguments.only or arguments.only in name:
            files[name] = entered(name, tree)
            figures[name] = len(files[name])
    if arguments.json:
        sys.stdout.write(json.dumps({"figures": figures, "files": files}, indent=1) + "\n")
    else:
        for name, value in figures.items():
            missed = "" if value <= BARS[name] else f"   missed by {value - BARS[name]:,}"
            sys.stdout.write(f"{name:28s} {value:8,}   bar {BARS[name]:8,}{missed}\n")
            if arguments.files:
                sys.stdout.writelines(f"    {file}\n" for file in files.get(name, ()))
        product = [path for package in PACKAGES for path in sorted((tree / package).rglob("*.py"))]
        if twice := names_defined_twice(product):
            sys.stdout.write(f"defined twice: {', '.join(twice)}\n")
    return int(any(value > BARS[name] for name, value in figures.items()))


if __name__ == "__main__":
    sys.exit(main())
