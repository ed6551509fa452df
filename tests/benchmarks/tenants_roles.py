"""Tenants in one gigabyte, whole roles: memory of `learn` and `serve` with 10,000 models by key of `loreta`.

    python -m tests.benchmarks.tenants_roles [--rank 8] [--keys 10000] [--per-key 4] [--no-steps]

Started as users start them, in a folder of their own: `oasis` without keys learns a few lists, whose W is
`keys.start`; then `learn` learns lists of every key, writes a version, and `serve` answers with it. Lists are
drawn at random, one click each. Memory is that of /proc/PID/smaps_rollup, looked at all the while: PSS, of
it anonymous, and RSS, 10^6 bytes, the largest and the last. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[2]
DIM, OBJECTS = 384, 2_000
LOOK_S = 0.1
PATIENCE_S = 600.0
CONFIG = """
[stream]
address = "log:{log}"
[learner]
algorithm = "{algorithm}"
{rank}
[space.views.x]
dim = 384
map = "unit"
[catalog]
path = "objects.npz"
[feed]
holdout_share = 0.0
random_negatives = 0
[checkpoints]
path = "{folder}"
every = "1h"
{keys}
[steps]
enabled = {steps}
[serve]
aliases = {aliases}
look_every = "100ms"
[http]
learn_port = 0
serve_port = 0
"""


class MemoryTaken:
    """Looks at a process until it is told to stop: the largest and the last of each number, in MB."""

    def __init__(self, pid: int) -> None:
        self.largest: dict[str, int] = {}
        self.last: dict[str, int] = {}
        self._pid, self._ending = pid, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def end(self) -> dict[str, int]:
        """Both, by name."""
        self._ending.set()
        self._thread.join()
        told = {f"{name}_mb_largest": value for name, value in self.largest.items()}
        return told | {f"{name}_mb_last": value for name, value in self.last.items()}

    def _run(self) -> None:
        while not self._ending.wait(LOOK_S):
            try:
                text = Path(f"/proc/{self._pid}/smaps_rollup").read_text(encoding="ascii")
            except OSError:
                return
            for line, name in (("Pss", "pss"), ("Pss_Anon", "pss_anonymous"), ("Rss", "rss")):
                found = re.search(rf"^{line}:\s+(\d+) kB", text, re.MULTILINE)
                if found is not None:
                    now = round(int(found[1]) * 1024 / 1e6)
                    self.last[name] = now
                    self.largest[name] = max(now, self.largest.get(name, 0))


def write_config(folder: Path, keys: int, rank: int, aliases: Sequence[str], steps: bool) -> None:
    """shared.toml, of one W for all, and tenants.toml. steps: whether servers follow click by click."""
    both = {"aliases": json.dumps(list(aliases)), "steps": json.dumps(steps)}
    shared = {"log": "shared.log", "algorithm": "oasis", "rank": "", "folder": "shared", "keys": ""}
    of_keys = f'[keys]\nslots = {keys}\nstart = "{folder}/shared:1"'
    tenants = {
        "log": "clicks.log",
        "algorithm": "loreta",
        "rank": f"rank = {rank}",
        "folder": "tenants",
        "keys": of_keys,
    }
    for name, given in (("shared", shared), ("tenants", tenants)):
        (folder / f"{name}.toml").write_text(CONFIG.format(**given, **both))


def write_lists(path: Path, keys: Sequence[str | None], rng: np.random.Generator) -> None:
    """A list of two objects for each key, the second one clicked."""
    with path.open("w") as file:
        for number, key in enumerate(keys):
            query, clicked, skipped = rng.choice(OBJECTS, 3, replace=False).tolist()
            line: dict[str, Any] = {"id": f"{path.stem}-{number}", "ts": 1_000_000 + number}
            line |= {"q": {"id": str(query)}, "shown": [str(skipped), str(clicked)], "clicked": [1]}
            file.write(json.dumps(line | ({} if key is None else {"key": key})) + "\n")


def run(folder: Path, *words: str) -> None:
    """A command, to its end."""
    done = subprocess.run(
        command(*words), cwd=folder, env=environment(), stderr=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])


def command(*words: str) -> list[str]:
    return [sys.executable, "-P", "-m", "daemon", *words]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


@contextmanager
def role(folder: Path, *words: str) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A running role and the file of its log."""
    log = folder / f"{words[0]}.log"
    with log.open("w") as stderr:
        process = subprocess.Popen(command(*words), cwd=folder, env=environment(), stderr=stderr, text=True)
    try:
        yield process, log
    finally:
        process.kill()
        process.wait()


def measure(keys: int, rank: int, per_key: int, aliases: Sequence[str], steps: bool) -> dict[str, Any]:
    """Both roles, one after the other."""
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory(dir=".") as made:
        folder = Path(made).absolute()
        write_config(folder, keys, rank, aliases, steps)
        rows = rng.normal(size=(OBJECTS, DIM)).astype(np.float32)
        np.savez(folder / "objects.npz", x=rows)
        (folder / "objects.ids.txt").write_text("\n".join(map(str, range(OBJECTS))))
        write_lists(folder / "everybody.jsonl", [None] * 500, rng)
        run(folder, "feed", "everybody.jsonl", "--config", "shared.toml")
        run(folder, "learn", "--exit-when-caught-up", "--config", "shared.toml")
        order = [f"tenant-{n}" for _ in range(per_key) for n in rng.permutation(keys).tolist()]
        write_lists(folder / "tenants.jsonl", order, rng)
        run(folder, "feed", "tenants.jsonl", "--config", "tenants.toml")
        began = time.perf_counter()
        with role(folder, "learn", "--exit-when-caught-up", "--config", "tenants.toml") as (process, log):
            taken = MemoryTaken(process.pid)
            if process.wait(PATIENCE_S):
                raise RuntimeError(log.read_text()[-2000:])
            learned = taken.end()
        seconds = time.perf_counter() - began
        versions = sorted((folder / "tenants" / "versions").iterdir())
        return {
            "keys": keys,
            "dim": DIM,
            "rank": rank,
            "events": len(order),
            "versions": len(versions),
            "learn": {**learned, "seconds": round(seconds, 1)},
            "serve": {"aliases": list(aliases), "steps": steps, **serving(folder, order)},
        }


def serving(folder: Path, order: Sequence[str]) -> dict[str, int]:
    """`serve`, once it answers tenants by the newest version."""
    with role(folder, "serve", "--config", "tenants.toml") as (process, log):
        taken = MemoryTaken(process.pid)
        url = _until(lambda: re.search(r'"url": "(http://[^"]+)"', log.read_text()), process, log)[1]
        _until(lambda: _asked(f"{url}/readyz") is not None, process, log)
        _until(lambda: '"base":0' not in str(_asked(f"{url}/v1/similar?id=1")), process, log)
        for key in dict.fromkeys(order[:300]):
            if _asked(f"{url}/v1/similar?id=1&key={key}") is None:
                raise RuntimeError(log.read_text()[-2000:])
        time.sleep(2)
        return taken.end()


def _asked(url: str) -> str | None:
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return str(answer.read().decode())
    except OSError:
        return None


def _until(happened: Any, process: subprocess.Popen[str], log: Path) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline and process.poll() is None:
        if found := happened():
            return found
        time.sleep(0.2)
    raise RuntimeError(log.read_text()[-2000:])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=10_000)
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--per-key", type=int, default=4)
    parser.add_argument("--aliases", default="latest", help="served names, with commas")
    parser.add_argument("--no-steps", action="store_true", help="serve from version to version alone")
    given = parser.parse_args()
    names = given.aliases.split(",")
    found = measure(given.keys, given.rank, given.per_key, names, not given.no_steps)
    print(json.dumps(found, indent=1))
