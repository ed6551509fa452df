"""Every role at work for as long as asked: memory, descriptors, threads and files must stay where they are.

`python -m tests.soak.steady MINUTES` runs `up` with one model per key (more keys than slots), a topic of
items, retention of seconds and a version every two seconds; clicks, items, questions and promotions come all
the while. It prints what each role held in the first and in the last fifth of the time, without the warm-up.
"""

from __future__ import annotations

import contextlib
import io
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from daemon.cli import main as tripletd
from tests.daemon.test_up import CONFIG, ROOT
from tests.soak.long_history import command, free_port, is_ready

WARM_UP = 0.2
"""Share of the time left out: caches fill, the first snapshots are made."""
SETTINGS = """
[keys]
slots = 4
when_full = "evict"
evict_after = 10
[checkpoints]
every = "2s"
keep = 5
[log]
level = "warning"
"""
RETENTION = 'retention = "20s"\n'
TURN_S = 2.0
LISTS = 40


@dataclass
class Held:
    """What a role, or the folders, held at each look: resident MB, descriptors, threads; files, MB."""

    at: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def add(self, **what: float) -> None:
        """One look."""
        for name, value in what.items():
            self.at[name].append(value)

    def ends(self) -> dict[str, tuple[float, float]]:
        """Of each measure the median of the first and of the last fifth after the warm-up."""
        found = {}
        for name, values in self.at.items():
            kept = values[int(len(values) * WARM_UP) :]
            part = max(1, len(kept) // 5)
            found[name] = median(kept[:part]), median(kept[-part:])
        return found


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
    """What each process and the folders hold now."""
    for role, pid in (("up", up), *roles_of(up)):
        status = dict(
            line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line
        )
        descriptors = len(list(Path(f"/proc/{pid}/fd").iterdir()))
        memory = int(status["VmRSS"].split()[0]) / 1024
        held[role].add(mb=memory, descriptors=descriptors, threads=int(status["Threads"]))
    with contextlib.suppress(FileNotFoundError):  # what is pruned meanwhile; the next look counts
        sizes = [file.stat().st_size for file in root.rglob("*") if file.is_file()]
        held["folders"].add(files=len(sizes), disk_mb=sum(sizes) / 2**20)


def steady(root: Path, minutes: float) -> tuple[dict[str, Held], Users]:
    """Run it; what was held at each look, and what the users saw."""
    config, port = root / "tripletd.toml", free_port()
    told = (
        CONFIG.replace("min_impressions = 5", "min_impressions = 5\npatience = 1000000")
        .replace("[stream]\n", f"[stream]\n{RETENTION}")
        .replace("serve_port = 0", f"serve_port = {port}\nup_port = 0")
    )
    config.write_text(told + SETTINGS)
    users, held = Users(root, config, port), defaultdict[str, Held](Held)
    users.run("topics", "create")
    with (root / "up.log").open("wb") as log:
        up = subprocess.Popen(command(config, ["up"]), cwd=ROOT, stderr=log, stdout=log)
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


def _first(root: Path, users: Users) -> str:
    lists = root / "first.jsonl"
    lists.write_text("".join(f"{json.dumps(users.shown_list())}\n" for _ in range(200)))
    return str(lists)


def main() -> None:
    """Print the table."""
    minutes = float(sys.argv[1])
    with tempfile.TemporaryDirectory(prefix="tripletd-steady-") as place:
        held, users = steady(Path(place), minutes)
    for name, one in held.items():
        said = ", ".join(f"{what} {a:.0f} -> {b:.0f}" for what, (a, b) in one.ends().items())
        sys.stdout.write(f"{name:9s} {said}\n")
    sys.stdout.write(f"{users.asked} questions, {users.failed} failed; {users.number} lists\n")


if __name__ == "__main__":
    main()
