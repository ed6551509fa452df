"""`demo --keep`: the page over the demo's data, while it learns and afterwards, and a visitor."""

from __future__ import annotations

import json
import random
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from daemon.config.schema import HttpConfig
from daemon.demo.pack_files import load_pack, load_thumbnails
from daemon.exits import EX_CANTCREAT, EX_SOFTWARE, UserError
from daemon.runtime.runtime import Signals
from daemon.up.role_process import RoleProcess
from streams.foreign_http import BlockingClient, ForeignError, ForeignServer

EVERY_SECONDS = 0.1
TIMEOUT_SECONDS = 5.0
END_SECONDS = 10.0
ASKED = ("latest", "stable")


@contextmanager
def visitor(host: str, port: int, ids: Sequence[str], seed: int) -> Iterator[None]:
    """Ask for the neighbours of random objects, ten times a second, until the end of the context."""
    stop = threading.Event()
    thread = threading.Thread(target=_ask, args=(host, port, ids, seed, stop), name="visitor", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(END_SECONDS)


def _ask(host: str, port: int, ids: Sequence[str], seed: int, stop: threading.Event) -> None:
    drawn, turn = random.Random(seed), 0
    client = BlockingClient(ForeignServer(f"http://{host}:{port}", timeout_s=TIMEOUT_SECONDS))
    while not stop.wait(EVERY_SECONDS):
        turn += 1
        body = json.dumps({"id": drawn.choice(ids), "k": 10, "alias": ASKED[turn % len(ASKED)]})
        with suppress(ForeignError):  # it is not there yet, or busy
            client.ask("POST", "/v1/similar", body.encode())
    client.close()


DISPLAY = "display.jsonl"
PHOTOS = "photos"
LOOK_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class DemoPorts:
    """Where the roles say how they do; the page is on that of serve."""

    host: str
    learn: int
    validate: int
    serve: int

    @property
    def url(self) -> str:
        """Address of the page."""
        return f"http://{self.host}:{self.serve}/"


def free_ports() -> DemoPorts:
    """The usual ports, or any free one where somebody else has it."""
    usual = HttpConfig.model_validate({})
    wanted = (usual.learn_port, usual.validate_port, usual.serve_port)
    return DemoPorts(usual.host, *(_free(usual.host, port) for port in wanted))


def write_photos(folder: Path) -> None:
    """Every photo of the pack as a file, and `display.jsonl`, which names them by id. UserError."""
    pack, photos = load_pack(), folder / PHOTOS
    try:
        photos.mkdir()
        with (folder / DISPLAY).open("w", encoding="utf-8") as lines:
            for row, (object_id, jpeg) in enumerate(zip(pack.catalog.ids, load_thumbnails(), strict=True)):
                name, label = f"{row:05d}.jpg", str(pack.labels[row])
                (photos / name).write_bytes(jpeg)
                shown = {"id": object_id, "text": label, "image": f"{PHOTOS}/{name}", "tags": [label]}
                lines.write(json.dumps(shown) + "\n")
    except OSError as error:
        remedy = "name a folder that can be written with --out"
        raise UserError(f"{folder}: {error.strerror}", remedy, EX_CANTCREAT) from None


def stay(url: str, serve: RoleProcess, log: Path, notes: Console) -> None:
    """Wait for Ctrl-C or SIGTERM. UserError when serve ends before."""
    with Signals() as signals:
        notes.print(f"\nThe page stays at {url} over the demo's data; Ctrl-C ends it.")
        while not signals.wait(LOOK_SECONDS):
            if serve.poll() is not None:
                message = f"serve ended with exit code {serve.poll()}"
                raise UserError(message, f"its messages are in {log}", EX_SOFTWARE)


def _free(host: str, wanted: int) -> int:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with suppress(OSError):
            probe.bind((host, wanted))
            return wanted
        probe.bind((host, 0))
        return int(probe.getsockname()[1])
