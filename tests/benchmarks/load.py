"""An open-loop load on a server: `python -m tests.benchmarks.load --port 9103 --questions FILE --rate 200`.

Questions leave at their times whatever the server does (a slow answer delays no later question), and latency
counts from the time at which a question was due, so that a server which stands still cannot hide it. Every
answer is kept with its question, for whoever computes it again. One thread per connection: sleeping in a
thread is exact to some 60 us, an event loop's timers to 1 ms. It belongs in a process of its own (`beside`).
"""

from __future__ import annotations

import argparse
import itertools
import json
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

TIMEOUT_S = 15.0
NO_ANSWER = 0
"""In the place of a status: no connection, a reset, or nothing in time."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One question. `due`: Unix seconds at which it was to leave; `late`: seconds it left after that;
    `seconds`: from due to the last byte of the answer; `question`: its place among the questions.
    """

    due: float
    late: float
    seconds: float
    status: int
    question: int
    answer: str


@dataclass(frozen=True, slots=True)
class Load:
    """Questions (bodies of POST `path`, taken in turn) at `rate` per second for `seconds`."""

    host: str
    port: int
    questions: Sequence[bytes]
    rate: float
    seconds: float
    connections: int = 32
    path: str = "/v1/similar"

    def run(self, stop: threading.Event | None = None) -> list[Asked]:
        """Ask, in this process, until `seconds` are over or `stop` is set; all that was asked, in order."""
        begin, begin_unix = time.perf_counter() + 0.05, time.time() + 0.05
        places, found = itertools.count(), list[Asked]()

        def worker() -> None:
            connection = _Connection(self.host, self.port)
            for place in places:  # next() of a count is atomic: each place goes to one worker
                offset = place / self.rate
                if offset >= self.seconds or (stop is not None and stop.is_set()):
                    break
                time.sleep(max(0.0, begin + offset - time.perf_counter()))
                late = time.perf_counter() - begin - offset
                question = place % len(self.questions)
                status, answer = connection.ask(self.path, self.questions[question])
                seconds = time.perf_counter() - begin - offset
                found.append(Asked(begin_unix + offset, late, seconds, status, question, answer))
            connection.close()

        threads = [threading.Thread(target=worker, daemon=True) for _ in range(self.connections)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(self.seconds + 2 * TIMEOUT_S)
        return sorted(found, key=lambda asked: asked.due)


class _Connection:
    """One connection kept open; opened anew after any failure."""

    def __init__(self, host: str, port: int) -> None:
        self._address = host, port
        self._socket: socket.socket | None = None
        self._head = f"Host: {host}\r\nContent-Type: application/json\r\n"

    def ask(self, path: str, body: bytes) -> tuple[int, str]:
        """Status and text of the answer; NO_ANSWER and the reason when there is none."""
        try:
            if self._socket is None:
                self._socket = socket.create_connection(self._address, TIMEOUT_S)
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            head = f"POST {path} HTTP/1.1\r\n{self._head}Content-Length: {len(body)}\r\n\r\n"
            self._socket.sendall(head.encode() + body)
            return self._read(self._socket)
        except (OSError, ValueError) as error:
            self.close()
            return NO_ANSWER, f"{type(error).__name__}: {error}"

    def _read(self, connection: socket.socket) -> tuple[int, str]:
        data = b""
        while b"\r\n\r\n" not in data:
            data += _more(connection)
        head, _, body = data.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").lower().split("\r\n")
        fields = dict(line.split(": ", 1) for line in lines[1:])
        while len(body) < int(fields["content-length"]):
            body += _more(connection)
        if fields.get("connection") == "close":
            self.close()
        return int(lines[0].split()[1]), body.decode()

    def close(self) -> None:
        """Let go of the socket."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _more(connection: socket.socket) -> bytes:
    data = connection.recv(65536)
    if not data:
        raise ConnectionError("closed before the answer was whole")
    return data


def summary(asked: Sequence[Asked]) -> dict[str, Any]:
    """Counts by status, and percentiles in milliseconds of the answers with status 200."""
    good = np.array([one.seconds for one in asked if one.status == 200]) * 1e3
    late = np.array([one.late for one in asked]) * 1e3
    told: dict[str, Any] = {
        "asked": len(asked),
        "failed": sum(one.status != 200 for one in asked),
        "statuses": dict(sorted(Counter(one.status for one in asked).items())),
    }
    if len(good):
        for name, share in (("p50", 50), ("p90", 90), ("p99", 99), ("max", 100)):
            told[f"{name}_ms"] = round(float(np.percentile(good, share)), 3)
        told["late_p99_ms"] = round(float(np.percentile(late, 99)), 3)
    return told


def write(asked: Sequence[Asked], file: Path) -> None:
    """One JSON object per line: due, late, seconds, status, question, answer (as text)."""
    with file.open("w", encoding="utf-8") as lines:
        for one in asked:
            fields = {name: getattr(one, name) for name in Asked.__slots__}
            lines.write(json.dumps(fields) + "\n")


def read(file: Path) -> list[Asked]:
    """What `write` wrote."""
    with file.open(encoding="utf-8") as lines:
        return [Asked(**json.loads(line)) for line in lines]


@dataclass
class Beside:
    """A load in a process of its own; `asked` is there after the block. `stop` ends it sooner."""

    stop: Callable[[], None]
    asked: list[Asked] = field(default_factory=list)


@contextmanager
def beside(load: Load) -> Iterator[Beside]:
    """Run `load` in another process while the block runs, then wait for its end and read what it got."""
    with tempfile.TemporaryDirectory() as folder:
        questions, out = Path(folder, "questions"), Path(folder, "answers")
        questions.write_bytes(b"\n".join(load.questions) + b"\n")
        arguments: dict[str, Any] = {
            "host": load.host,
            "port": load.port,
            "questions": questions,
            "rate": load.rate,
            "seconds": load.seconds,
            "connections": load.connections,
            "path": load.path,
            "out": out,
        }
        options = [f"--{name}={value}" for name, value in arguments.items()]
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.benchmarks.load", *options], stdout=subprocess.DEVNULL
        )
        told = Beside(process.terminate)
        try:
            yield told
            process.wait(load.seconds + 4 * TIMEOUT_S)
        finally:
            process.kill()
            process.wait()
        told.asked = read(out)


def main(arguments: Sequence[str] | None = None) -> int:
    """Ask, write the answers when told where, and print the summary as JSON."""
    parser = argparse.ArgumentParser(description="An open-loop load on a server.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--questions", type=Path, required=True, help="one JSON body per line")
    parser.add_argument("--rate", type=float, default=100.0, help="questions per second")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--path", default="/v1/similar")
    parser.add_argument("--out", type=Path, help="where to write every answer with its question")
    given = parser.parse_args(arguments)
    bodies = [line for line in given.questions.read_bytes().splitlines() if line]
    load = Load(given.host, given.port, bodies, given.rate, given.seconds, given.connections, given.path)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda number, frame: stop.set())
    asked = load.run(stop)
    if given.out is not None:
        write(asked, given.out)
    sys.stdout.write(json.dumps(summary(asked)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
