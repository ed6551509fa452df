"""Several processes of `serve` on one port, run by a parent that answers nothing itself.

The parent holds the listening sockets, one for each process, and says who takes connections from which
(`handing_over`). A process that ends, is killed or starts again is replaced by the others at once.
"""

from __future__ import annotations

import json
import selectors
import socket
import sys
import threading
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from daemon.config.schema import LAST_PORT, Config
from daemon.exits import UserError
from daemon.runtime.logs import configure, get_logger
from daemon.runtime.runtime import Signals
from daemon.runtime.watchdog import BackgroundThread, Notifier
from daemon.telemetry.server import listen
from daemon.up.handing_over import RollingRestart, State, shared_out
from daemon.up.role_process import RoleProcess
from daemon.up.supervisor import GRACE_S, RoleSpec, Supervisor, check_ports

_MOST_BYTES = 4096


class SharedSockets(BackgroundThread):
    """The listening sockets of a port, and the thread that shares them out. `begin` and `next_to_renew`
    belong to the main thread."""

    name = "shared sockets"

    def __init__(self, host: str, port: int, count: int) -> None:
        """Raises UserError: the port is taken, also by others who would share it."""
        super().__init__()
        listen(host, port).close()  # alone, so that two configurations never answer for each other
        self.sockets = [listen(host, port, shared=True)]
        self.host, self.port = self.sockets[0].getsockname()[:2]
        self.sockets += [listen(host, self.port, shared=True) for _ in range(1, count)]
        self._lock = threading.Lock()
        self._states: list[State] = ["gone"] * count
        self._starts = [0] * count
        self._controls: dict[int, socket.socket] = {}
        self._told: dict[int, list[int]] = {}
        self._selector = selectors.DefaultSelector()
        self._woken, self._waker = socket.socketpair()
        self._selector.register(self._woken, selectors.EVENT_READ, -1)
        self._ending = False
        self._rolling = RollingRestart(count)
        self.was_ready = False
        """Whether any process has ever answered."""

    def begin(self, number: int) -> tuple[socket.socket, list[int]]:
        """A process is about to be started: its end of a new connection, to be closed here once it has it;
        and all descriptors that it inherits, that one first."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        with self._lock:
            self._drop(number)
            self._controls[number] = ours
            self._selector.register(ours, selectors.EVENT_READ, number)
            self._starts[number] += 1
            self._states[number] = "starting"
            self._share()
        self._wake()
        return theirs, [theirs.fileno(), *(one.fileno() for one in self.sockets)]

    def roll(self) -> None:
        """Have all processes started again, one after another."""
        self._rolling.begin()

    def next_to_renew(self) -> int | None:
        """The process to be started again now, None for none."""
        with self._lock:
            return self._rolling.next(self._states, self._starts)

    def stop(self) -> None:
        """End the thread; the sockets close with the process."""
        self._ending = True
        self._wake()

    def _wake(self) -> None:
        with suppress(OSError):
            self._waker.send(b".")

    def _run(self) -> None:
        while not self._ending:
            for key, _ in self._selector.select():
                if key.data < 0:
                    self._woken.recv(_MOST_BYTES)
                else:
                    self._hear(key.data, key.fileobj)

    def _hear(self, number: int, control: object) -> None:
        with self._lock:
            if self._controls.get(number) is not control:
                return
            try:
                message = self._controls[number].recv(_MOST_BYTES)
            except BlockingIOError:
                return
            except OSError:
                message = b""
            if message:
                self._states[number] = json.loads(message)["state"]
                self.was_ready = self.was_ready or self._states[number] == "ready"
            else:
                self._drop(number)
            self._share()

    def _drop(self, number: int) -> None:
        self._states[number] = "gone"
        self._told.pop(number, None)
        control = self._controls.pop(number, None)
        if control is not None:
            self._selector.unregister(control)
            control.close()

    def _share(self) -> None:
        """Tell everybody whose share is another one; who gets more hears it first, so that somebody always
        takes."""
        shares = shared_out(self._states)
        for number in sorted(self._controls, key=lambda one: -len(shares[one])):
            if self._told.get(number) != shares[number]:
                with suppress(OSError):  # it has ended, which is heard next
                    self._controls[number].send(json.dumps({"accept": shares[number]}).encode())
                    self._told[number] = shares[number]


def process_ports(config: Config) -> list[int]:
    """The port of each process alone; 0, any free one, for all where the configuration says so. Raises
    UserError where that is more than there are."""
    first, count = config.http.process_ports, config.serve.processes
    if first and first + count - 1 > LAST_PORT:
        raise UserError(f"http.process_ports: {first} and {count} processes go beyond port {LAST_PORT}")
    return [first + number if first else 0 for number in range(count)]


def run(config: Config, file: Path | None, settings: Sequence[str]) -> int:
    """Run the processes until a signal stops them; the exit code. SIGUSR1 starts one after another again.

    file, settings: the configuration of all of them, as given. Raises UserError: a port is taken.
    """
    count, log_format = config.serve.processes, config.log.format
    prefix = log_format == "console" or (log_format == "auto" and sys.stderr.isatty())
    configure(config.log.level, "console" if prefix else "json", "serve")
    log, ports = get_logger(), process_ports(config)
    check_ports(config.http.host, ports)
    shared = SharedSockets(config.http.host, config.http.serve_port, count)
    scheme = "https" if config.http.tls_certificate else "http"
    log.info("one port for several processes", url=f"{scheme}://{shared.host}:{shared.port}", processes=count)
    given = [*(("--config", str(file)) if file else ())]
    for setting in settings:
        given += ["--set", setting]
    specs = [
        RoleSpec(f"serve-{number}", ("serve", *given, "--set", f"http.serve_port={port}"))
        for number, port in enumerate(ports)
    ]

    def start(spec: RoleSpec) -> RoleProcess:
        number = int(spec.name.rpartition("-")[2])
        theirs, descriptors = shared.begin(number)
        with theirs:
            words = ("--shared", ",".join(map(str, (number, *descriptors))))
            return RoleProcess(spec.name, (*spec.arguments, *words), prefix, inherited=descriptors)

    with ExitStack() as stack:
        signals = stack.enter_context(Signals())
        stack.callback(shared.close)
        shared.start()

        def roll() -> None:
            log.info("all processes are started again, one after another")
            shared.roll()

        def to_renew() -> str | None:
            number = shared.next_to_renew()
            return None if number is None else specs[number].name

        return Supervisor(
            specs,
            start,
            signals,
            log,
            grace_s=GRACE_S + (config.serve.drain or 0.0),
            notifier=Notifier.of_this_process(),
            checkpoint=roll,
            at_stake=lambda: shared.was_ready,
            to_renew=to_renew,
        ).run()
