"""A server of S3's protocol on loopback: versitygw over a folder, and stores in its bucket."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from checkpoints import ObjectSettings, ObjectStore, open_object_store
from tests.harness.kafka.lifeline import guard_process, release_process
from tests.harness.kafka.ports import free_ports
from tests.harness.waiting import until

ROOT = Path(__file__).resolve().parents[2]
BUCKET = "tripletd-tests"
KEY, SECRET = "loopback", "only-for-tests"
KEYS = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}
"""The environment of who may use it."""


def server_program() -> Path | None:
    """versitygw, where `make buckets` has built it."""
    return next(iter(sorted(ROOT.glob(".cache/s3/bin/versitygw-v*"))), None)


@dataclass(frozen=True)
class S3Server:
    """A running server: its URL, and the folder where its bucket's objects are files."""

    url: str
    bucket: Path

    def address(self, prefix: str) -> str:
        return f"s3://{BUCKET}/{prefix}"

    def store(self, prefix: str, endpoint: str = "", timeout_s: float = 10.0, **more: object) -> ObjectStore:
        """A store below `prefix`, through `endpoint` (a proxy) where one is given."""
        settings = ObjectSettings(endpoint or self.url, "us-east-1", timeout_s, **more)  # type: ignore[arg-type]
        return open_object_store(self.address(prefix), settings)

    def settings(self, prefix: str, endpoint: str = "", **more: object) -> Mapping[str, object]:
        """What [checkpoints] says for a place in it."""
        return {"path": self.address(prefix), "endpoint": endpoint or self.url, **more}


@contextmanager
def s3_server(folder: Path) -> Iterator[S3Server]:
    """Start one over `folder`, with an empty bucket; the environment has its keys meanwhile."""
    program = server_program()
    assert program is not None, "versitygw is not there: make buckets"
    (folder / "root" / BUCKET).mkdir(parents=True)
    (port,) = free_ports(1)
    command = [program, "--port", f"127.0.0.1:{port}", "--quiet", "posix", folder / "root"]
    keys = {"ROOT_ACCESS_KEY_ID": KEY, "ROOT_SECRET_ACCESS_KEY": SECRET}
    before = {name: os.environ.get(name) for name in KEYS}
    with (folder / "said").open("wb") as said:
        process = subprocess.Popen(command, stdout=said, stderr=said, env={**os.environ, **keys})
    guard_process(process.pid)
    try:
        until(lambda: _listens(port) or process.poll() is not None, (folder / "said").read_text)
        assert process.poll() is None, (folder / "said").read_text()
        os.environ.update(KEYS)
        yield S3Server(f"http://127.0.0.1:{port}", folder / "root" / BUCKET)
    finally:
        process.kill()
        process.wait()
        release_process(process.pid)
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
