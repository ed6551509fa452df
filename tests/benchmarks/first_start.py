"""Figures of a start: the README's first example, from `tripletd up` to its first answer over HTTP.

`first_start_seconds`: with no compiled kernel in the cache; the detail says when the first learned version
answered. `second_start_seconds`: the same again in a new folder, with the kernels there.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from statistics import median

from tests.benchmarks.harness import Figure

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "deploy" / "examples" / "first_clicks.py"
TRIPLETD = (sys.executable, "-P", "-m", "daemon")
LIMIT_SECONDS = 300.0
LOOK_SECONDS = 0.1
TIMES = 3


def figures() -> list[Figure]:
    """Both starts, the median of a few."""
    cold, warm = [], []
    for _ in range(TIMES):
        with tempfile.TemporaryDirectory() as cache:
            cold.append(started(cache))
            warm.append(started(cache))
    return [
        _figure("first_start_seconds", "the README's example, no kernel compiled before", cold),
        _figure("second_start_seconds", "the same with compiled kernels, in a new folder", warm),
    ]


def started(cache: str) -> tuple[float, float]:
    """Seconds from `up` to the first answer, and to the first one of a learned version."""
    with tempfile.TemporaryDirectory() as folder:
        shop, port = Path(folder, "shop"), _free_port()
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "NUMBA_CACHE_DIR": cache}
        subprocess.run([sys.executable, str(EXAMPLE), str(shop)], check=True, stdout=subprocess.DEVNULL)
        quiet = {"cwd": shop, "env": environment, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        subprocess.run([*TRIPLETD, "feed", "clicks.jsonl"], check=True, **quiet)  # type: ignore[call-overload]
        ports = {"serve": port, "learn": _free_port(), "validate": _free_port(), "up": _free_port()}
        settings = [f"--set=http.{role}_port={one}" for role, one in ports.items()]
        began = time.monotonic()
        with subprocess.Popen([*TRIPLETD, "up", *settings], **quiet) as up:  # type: ignore[call-overload]
            try:
                first = _until(port, up, began, lambda version: True)
                learned = _until(port, up, began, lambda version: version != "0")
            finally:
                up.terminate()
        return first, learned


def _until(port: int, up: subprocess.Popen[bytes], began: float, enough: Callable[[str], bool]) -> float:
    """Seconds until an answer's version is good enough."""
    address = f"http://127.0.0.1:{port}/v1/similar?id=thing-7&k=3"
    while time.monotonic() - began < LIMIT_SECONDS:
        if up.poll() is not None:
            raise RuntimeError("tripletd up has ended")
        try:
            with urllib.request.urlopen(address, timeout=LIMIT_SECONDS) as answer:
                version = json.load(answer)["version"]
        except (urllib.error.URLError, OSError):
            version = None
        if version is not None and enough(version):
            return time.monotonic() - began
        time.sleep(LOOK_SECONDS)
    raise RuntimeError(f"no such answer within {LIMIT_SECONDS:.0f} s")


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


def _figure(name: str, against: str, found: list[tuple[float, float]]) -> Figure:
    firsts, learned = [one for one, _ in found], [one for _, one in found]
    detail = {
        "lowest": round(min(firsts), 1),
        "highest": round(max(firsts), 1),
        "learned": round(median(learned), 1),
    }
    return Figure(name, round(median(firsts), 1), "s", against, len(found), detail)
