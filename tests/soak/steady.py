"""Every role at work for as long as asked: memory, descriptors, threads and files must stay where they are.

`python -m tests.soak.steady MINUTES` runs `up` with one model per key (more keys than slots), a topic of
items, retention of seconds and a version every ten seconds; clicks, items, questions and promotions come all
the while. It prints what each role held when everything bounded was full and at the end, and whether that is
flat; it exits with 1 where anything grows. `--leak ROLE` proves that it would tell: that role loses LEAK_MB a
minute. `make soak SOAK="--only steady"` is the same as rows of its table.

What is bounded is full early: the ledger has the entries of a fold before `up` starts, the windows of ids and
of the holdout are small. What still moves then is the ledger: of the verdicts of a day 10,000 are kept, 3 KB
each in each of its readers (`learn` has two), and at this cadence some hundred come while it is looked.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from checkpoints import Ledger, LocalStore
from checkpoints.retention import FOLD_EVERY, LEAVE
from daemon.cli import main as tripletd
from tests.daemon.test_up import CONFIG, ROOT
from tests.harness.kafka.ports import free_ports
from tests.harness.kill.tally import Tally
from tests.soak.long_history import command, is_ready

FULL_AFTER = 1 / 3
"""Share of the time left out: what is bounded fills, sample by sample, and the allocator finds its level."""
ALLOWED: Mapping[str, float] = {
    "memory_mb": 3.0,  # two hundred verdicts with six keys each, and what the allocator keeps
    "descriptors": 2,  # a connection that is open at one look
    "threads": 2,
    "files": 8,  # a version or a snapshot more at one look
    "ledger_files": FOLD_EVERY,
    "disk_mb": 8.0,  # versions and the embedded log, whose free pages are used again
    "wal_mb": 36.0,  # SQLite begins each of its two write-ahead logs anew at some 16 MB
}
"""By how much the median of the last fifth may lie above the one of the first fifth, once all is full."""
MOST_LEDGER_FILES = 2 * FOLD_EVERY + LEAVE + 32
"""Whenever it is looked: entries that one snapshot stands for, those that none does yet, and a few more: what
is deleted is what two snapshots stand for.
"""
SETTINGS = """
[keys]
slots = 4
when_full = "evict"
evict_after = 10
[checkpoints]
every = "10s"
keep = 5
[learner]
dedupe_window = 1000
[log]
level = "warning"
"""
RETENTION = 'retention = "20s"\n'
WINDOW = 200
"""Impressions that versions are judged on."""
TURN_S = 2.0
LISTS = 40
LEAK_MB = 1.0
_LEAK = f"""
import sys, threading, time
def lose():
    kept = []
    while True:
        kept.append(bytes(range(256)) * {int(LEAK_MB * 4096 / 60)})
        time.sleep(1)
words = open("/proc/self/cmdline", "rb").read().split(bytes(1))
if b"ROLE" in words:
    threading.Thread(target=lose, daemon=True).start()
"""


@dataclass(frozen=True)
class Ends:
    """Of one measure, once all was full: the median of the first fifth, of the last fifth, the highest."""

    first: float
    last: float
    highest: float


@dataclass
class Held:
    """What a role, or the folders, held at each look: MB, descriptors, threads; files, MB on disk."""

    at: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def add(self, **what: float) -> None:
        """One look."""
        for name, value in what.items():
            self.at[name].append(value)

    def ends(self) -> dict[str, Ends]:
        """By measure."""
        return {name: ends_of(values) for name, values in self.at.items()}

    def grown(self) -> list[str]:
        """A line for each measure that grows."""
        return [line for name, ends in self.ends().items() for line in grown(name, ends)]

    def line(self) -> str:
        """All measures, for people."""
        return ", ".join(f"{name} {ends.first:.0f} -> {ends.last:.0f}" for name, ends in self.ends().items())


def ends_of(values: Sequence[float]) -> Ends:
    """Of looks at equal distances, without those before all was full. Pure."""
    kept = values[int(len(values) * FULL_AFTER) :]
    part = max(1, len(kept) // 5)
    return Ends(median(kept[:part]), median(kept[-part:]), max(kept))


def grown(name: str, ends: Ends) -> list[str]:
    """Why a measure is not flat; nothing where it is. Pure."""
    told = []
    if ends.last - ends.first > ALLOWED[name]:
        told.append(f"{name} grows: {ends.first:.1f} -> {ends.last:.1f}, {ALLOWED[name]:g} is allowed")
    if name == "ledger_files" and ends.highest > MOST_LEDGER_FILES:
        told.append(f"{name}: {ends.highest:.0f} at one look, {MOST_LEDGER_FILES} is the bound")
    return told


class Users:
    """Clicks, items, questions and promotions of one shop, drawn from a seed."""

    def __init__(self, root: Path, config: Path, port: int) -> None:
        self._root, self._config, self._port = root, config, port
        self._draw = random.Random(7)
        self.number = 0
        self.failed = 0
        self.asked = 0

    def turn(self) -> None:
        """A few seconds' worth of all of it."""
        lists = self._root / "lists.jsonl"
        lists.write_text("".join(f"{json.dumps(self.shown_list())}\n" for _ in range(LISTS)))
        self.run("feed", str(lists))
        items = self._root / "items.jsonl"
        items.write_text("".join(f"{json.dumps(self._item())}\n" for _ in range(5)))
        self.run("items", "put", str(items))
        for _ in range(20):
            self._ask()
        if self.number % (10 * LISTS) == 0:
            self.run("models", "promote", "latest")

    def shown_list(self) -> dict[str, object]:
        """The next shown list, as `feed` reads it."""
        self.number += 1
        values = [[self._draw.gauss(0, 1) for _ in range(4)] for _ in range(5)]
        best = max(range(4), key=lambda place: values[0][0] * values[1 + place][0])
        shown = [{"id": f"p{self.number}.{place}", "x": x} for place, x in enumerate(values[1:])]
        query = {"id": f"q{self.number}", "x": values[0]}
        told = {"ts": int(time.time() * 1000), "key": f"tenant-{self.number // 7 % 6}"}
        return {"id": f"i{self.number}", "q": query, "shown": shown, "clicked": [best], **told}

    def _item(self) -> dict[str, object]:
        number = self._draw.randrange(500)
        return {"id": f"item-{number}", "views": {"x": [self._draw.gauss(0, 1) for _ in range(4)]}}

    def _ask(self) -> None:
        self.asked += 1
        body = json.dumps({"x": [1, 0, 0, 0], "k": 5, "key": f"tenant-{self.asked % 6}"}).encode()
        place = f"http://127.0.0.1:{self._port}/v1/similar"
        wanted = urllib.request.Request(place, body, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(wanted, timeout=10) as answer:
                answer.read()
        except (urllib.error.URLError, OSError):
            self.failed += 1

    def run(self, *words: str) -> None:
        """One command; AssertionError unless it ends with 0."""
        told = io.StringIO()
        with contextlib.redirect_stdout(told), contextlib.redirect_stderr(told):
            code = tripletd([*words, "--config", str(self._config)])
        if code:
            raise AssertionError(f"tripletd {' '.join(words)} ended with {code}: {told.getvalue()[-500:]}")


def roles_of(up: int) -> Iterator[tuple[str, int]]:
    """The roles that `up` runs, by name, with their processes."""
    for child in Path(f"/proc/{up}/task/{up}/children").read_text().split():
        words = Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")
        for role in ("learn", "validate", "serve"):
            if role.encode() in words:
                yield role, int(child)


def look(held: dict[str, Held], up: int, root: Path) -> None:
    """What each process and the folders hold now. Memory is what no other process shares and no file backs:
    pages of libraries come and go as the machine likes.
    """
    for role, pid in (("up", up), *roles_of(up)):
        status = dict(
            line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line
        )
        descriptors = len(list(Path(f"/proc/{pid}/fd").iterdir()))
        memory = int(status["RssAnon"].split()[0]) / 1024
        held[role].add(memory_mb=memory, descriptors=descriptors, threads=int(status["Threads"]))
    with contextlib.suppress(FileNotFoundError):  # what is pruned meanwhile; the next look counts
        sizes = {file: file.stat().st_size for file in root.rglob("*") if file.is_file()}
        entries = sum(file.parent.name == "ledger" for file in sizes)
        wal = sum(size for file, size in sizes.items() if file.name.endswith("-wal")) / 2**20
        disk = sum(sizes.values()) / 2**20 - wal
        held["folders"].add(files=len(sizes) - entries, ledger_files=entries, disk_mb=disk, wal_mb=wal)


def steady(root: Path, minutes: float, leak: str = "") -> tuple[dict[str, Held], Users]:
    """Run it; what was held at each look, and what the users saw. leak: a role that is to lose memory."""
    config, (port,) = root / "tripletd.toml", free_ports(1)
    told = (
        CONFIG.replace(
            "min_impressions = 5", f"min_impressions = 5\npatience_events = 1000000\nwindow = {WINDOW}"
        )
        .replace("[stream]\n", f"[stream]\n{RETENTION}")
        .replace("serve_port = 0", f"serve_port = {port}\nup_port = 0")
    )
    config.write_text(told + SETTINGS)
    users, held = Users(root, config, port), defaultdict[str, Held](Held)
    users.run("topics", "create")
    fill_ledger(root / "checkpoints")
    with (root / "up.log").open("wb") as log:
        up = subprocess.Popen(
            command(config, ["up"]), cwd=ROOT, stderr=log, stdout=log, env=_environment(root, leak)
        )
        try:
            users.run("feed", _first(root, users))
            deadline = time.monotonic() + 300
            while not is_ready(port):
                assert time.monotonic() < deadline, (root / "up.log").read_text()[-2000:]
                time.sleep(0.2)
            until = time.monotonic() + 60 * minutes
            while time.monotonic() < until:
                began = time.monotonic()
                users.turn()
                look(held, up.pid, root)
                time.sleep(max(0.0, TURN_S - (time.monotonic() - began)))
        finally:
            up.send_signal(signal.SIGTERM)
            up.wait(60)
    return held, users


def fill_ledger(folder: Path) -> None:
    """As many entries as are folded at once, each with as much as a verdict on six keys says."""
    ledger = Ledger(LocalStore(folder))
    measured = {f"measure {number}": number / 7 for number in range(12)}
    keys = {f"tenant-{number}": {**measured, "verdict": "learned", "why": ""} for number in range(6)}
    for _ in range(FOLD_EVERY + LEAVE):
        told = {"alias": "canary", "version": 0, "by": "soak", "reason": "an older day", "measures": keys}
        ledger.append({"kind": "PROMOTE", **told})


def _environment(root: Path, leak: str) -> dict[str, str]:
    """Of `up` and its roles: with a leak, Python runs it at the start of each process."""
    if not leak:
        return dict(os.environ)
    (root / "leak").mkdir()
    (root / "leak" / "sitecustomize.py").write_text(_LEAK.replace("ROLE", leak))
    paths = [str(root / "leak"), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def _first(root: Path, users: Users) -> str:
    lists = root / "first.jsonl"
    lists.write_text("".join(f"{json.dumps(users.shown_list())}\n" for _ in range(2 * WINDOW)))
    return str(lists)


def tallies(held: Mapping[str, Held], users: Users, minutes: float) -> list[Tally]:
    """A row for each role, for the folders and for the answers."""
    found = []
    for name, one in held.items():
        tally = Tally(f"{minutes:g} minutes at work: {name}", tried=len(next(iter(one.at.values()))))
        tally.bad, tally.worst = one.grown(), one.line()
        found.append(tally)
    answers = Tally(f"{minutes:g} minutes at work: answers", tried=users.asked)
    answers.bad = ["a question failed"] * users.failed
    answers.worst = f"{users.failed} failed; {users.number:,} lists"
    return [*found, answers]


def all_at_work(folder: Path, minutes: float) -> list[Tally]:
    """The rows of `make soak`."""
    return tallies(*steady(folder, minutes), minutes)


def main() -> int:
    """Print the table; 1 where anything grows."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.steady")
    parser.add_argument("minutes", type=float)
    parser.add_argument("--leak", choices=("learn", "validate", "serve"), default="")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tripletd-steady-") as place:
        found = tallies(*steady(Path(place), asked.minutes, asked.leak), asked.minutes)
    for one in found:
        sys.stdout.write(f"{one.what}: {'; '.join(dict.fromkeys(one.bad)) or 'flat'} ({one.worst})\n")
    return int(any(one.bad for one in found))


if __name__ == "__main__":
    sys.exit(main())
