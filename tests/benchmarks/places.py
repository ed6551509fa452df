"""A place with everything that is served: a catalog, a configuration, and the roles as real processes."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from daemon.look.live import RoleStatus, role_status
from learners import SparseBlock
from streams.catalog import Catalog
from streams.event import Column, DenseColumn, SpaceSpec, SparseColumn, ViewSpec
from tests.benchmarks.triplets import random_block
from tests.harness.catalog_files import save_catalog

RUN = Path("bench-run")
START_S = 180.0
STOP_S = 30.0

Kind = Literal["dense", "sparse"]


@dataclass(frozen=True)
class Place:
    """A folder with a configuration; `stream` is the text of [stream]; roles on free ports."""

    folder: Path
    kind: Kind
    dim: int
    items: int
    ports: dict[str, int]

    @classmethod
    def make(
        cls,
        name: str,
        kind: Kind,
        dim: int,
        items: int,
        stream: str = 'address = "log:clicks.log"',
        more: str = "",
    ) -> Place:
        """The folder anew, with a catalog of unit vectors and the configuration; `more` is added to it."""
        folder = RUN / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        ports = {role: free_port() for role in ("learn", "validate", "serve")}
        listed = "\n".join(f"{role}_port = {port}" for role, port in ports.items())
        (folder / "tripletd.toml").write_text(
            f'[stream]\n{stream}\n[space.views.x]\nkind = "{kind}"\ndim = {dim}\nmap = "identity"\n'
            f'[catalog]\npath = "catalog.safetensors"\n[http]\n{listed}\n{more}'
        )
        place = cls(folder, kind, dim, items, ports)
        save_catalog(place.catalog(), folder / "catalog.safetensors")
        return place

    @property
    def file(self) -> Path:
        """The configuration."""
        return self.folder / "tripletd.toml"

    def catalog(self) -> Catalog:
        """The objects, the same in every call: o0, o1, ..."""
        space = SpaceSpec("default", (ViewSpec("x", self.kind, self.dim),))
        return Catalog([f"o{n}" for n in range(self.items)], {"x": self._column()}, space)

    def _column(self) -> Column:
        rng = np.random.default_rng(7)
        if self.kind == "dense":
            values = rng.normal(size=(self.items, self.dim)).astype(np.float32)
            values /= np.linalg.norm(values, axis=1, keepdims=True)
            return DenseColumn(values)
        block: SparseBlock = random_block(rng, self.items, self.dim)
        return SparseColumn(block.indptr, block.indices, block.values, self.dim)

    @contextmanager
    def running(self, role: str, *options: str) -> Iterator[subprocess.Popen[bytes]]:
        """A role of the place; it is ready inside the block, and told to stop at its end."""
        words = [sys.executable, "-P", "-m", "daemon", role, "--config", str(self.file), *options]
        with (self.folder / f"{role}.log").open("ab") as log:
            process = subprocess.Popen(words, stderr=log, env=environment())
        try:
            self._await(process, role)
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def learn(self) -> None:
        """Learn all there is, and write a version."""
        words = [sys.executable, "-P", "-m", "daemon", "learn", "--config", str(self.file)]
        with (self.folder / "learn.log").open("ab") as log:
            subprocess.run([*words, "--exit-when-caught-up"], stderr=log, env=environment(), check=True)

    def page(self, role: str) -> str:
        """The metrics of a role."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.ports[role]}/metrics", timeout=10) as answer:
            text: str = answer.read().decode()
        return text

    def status(self, role: str) -> RoleStatus:
        """What a role says of itself."""
        status = role_status("127.0.0.1", self.ports[role])
        assert status is not None
        return status

    def number(self, role: str, name: str) -> float:
        """The sum of a metric over its labels."""
        found = re.findall(rf"^{name}(?:\{{[^}}]*\}})? (\S+)", self.page(role), re.M)
        return float(sum(map(float, found)))

    def _await(self, process: subprocess.Popen[bytes], role: str) -> None:
        page = "startupz" if role == "validate" else "readyz"  # it is ready once it has judged
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            assert process.poll() is None, (self.folder / f"{role}.log").read_text()[-2000:]
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.ports[role]}/{page}", timeout=5):
                    return
            except (urllib.error.HTTPError, OSError):
                time.sleep(0.1)
        raise AssertionError(f"{role} is not ready: {(self.folder / f'{role}.log').read_text()[-2000:]}")


def environment() -> dict[str, str]:
    """Of the processes: one BLAS thread, and this very checkout."""
    return {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1"}


Cores = dict[int, tuple[float, float]]
"""By thread: seconds that it ran, and that it could have run while no core was free."""


def cores_of(pid: int) -> Cores:
    """Of a process's threads since each began; empty where Linux does not count it."""
    found = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            ran, waited, _ = map(int, (task / "schedstat").read_text().split())
        except (OSError, ValueError):
            continue
        found[int(task.name)] = ran / 1e9, waited / 1e9
    return found


def busiest(before: Cores, after: Cores) -> tuple[float, float]:
    """Of the thread that ran most in between: seconds that it ran, and that it waited for a core."""
    spans = [
        (ran - before.get(thread, (0.0, 0.0))[0], waited - before.get(thread, (0.0, 0.0))[1])
        for thread, (ran, waited) in after.items()
    ]
    return max(spans, default=(0.0, 0.0))


def ran(before: Cores, after: Cores) -> float:
    """Seconds that all threads ran in between, without those that have ended."""
    return sum(seconds - before.get(thread, (0.0, 0.0))[0] for thread, (seconds, _) in after.items())


def pin(pid: int, cores: Iterable[int]) -> None:
    """Let a process run on these cores alone, and all that it starts from now on."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(task.name), cores)


def rss_anon(pid: int) -> int:
    """Anonymous memory of a process, bytes; 0 when it is gone."""
    try:
        found = re.search(r"^RssAnon:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.M)
    except OSError:
        return 0
    return int(found.group(1)) * 1024 if found else 0


def free_port() -> int:
    """A port that was free just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
