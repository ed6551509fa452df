"""A run of the demo: its configuration and its processes.

The configuration is the defaults over the shipped photos, with versions cut often enough to watch. The
processes are users | feed, learn, validate, over one embedded log, until learning stops itself.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO

from daemon.config import load_config
from daemon.demo.pack_files import CATALOG, LABELS, load_pack
from daemon.demo.page import DISPLAY, DemoPorts
from daemon.exits import EX_OK, EX_SOFTWARE, EX_TEMPFAIL, UserError
from daemon.look.curves import CurveReader, Curves
from daemon.look.live import status_at
from daemon.up.role_process import RoleProcess
from daemon.versions.storage import open_store

ENDING = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """For the length of the context a SIGTERM raises SystemExit, so that every context inside is left."""

    def leave(_number: int, _frame: FrameType | None) -> None:
        raise SystemExit(EX_OK)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def unbroken() -> Iterator[None]:
    """For the length of the block SIGTERM and Ctrl-C wait: what it starts is noted before they end it."""
    came: list[int] = []
    before = {number: signal.signal(number, lambda sent, frame: came.append(sent)) for number in ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    for sent in came:
        signal.raise_signal(sent)


LOOK_SECONDS = 0.5
END_SECONDS = 30.0
LIMIT_SECONDS = 300.0
"""From version 0 on, until learning has stopped by itself; a slow machine shows what it has by then."""
NOTHING_SECONDS = 600.0
"""Until then there is a version 0; a demo without a page ends then, and one with a page waits on."""
LISTS = 18_000
"""The most that are shown. A busy machine judges fewer versions, between which more was learned: it would
never see gains that are small enough to stop."""
LISTS_PER_SECOND = 250.0
LEARNED_LOOKS = 4
"""So often in a row the learner says that no event waits before it is taken to have learned all."""
JUDGE_SECONDS = 30.0
"""How long the last version may wait for its judgement."""


@dataclass(frozen=True)
class DemoProgress:
    """What the demo's stores say at one moment: the curves, how many `versions` were written, the `seconds`
    since its processes were started.
    """

    curves: Curves
    versions: int
    seconds: float


class DemoRun:
    """One run in `folder`, which holds tripletd.toml; everything it writes lands there.

    The processes end with the `processes()` context, whatever happens inside it.
    """

    def __init__(self, folder: Path, settings: Path, seed: int) -> None:
        stored = open_store(folder / "checkpoints")
        self.versions = stored.versions
        self._curves = CurveReader(self.versions, stored.ledger)
        self._folder, self._settings, self._seed = folder, settings, seed
        self._http = load_config(settings).http
        self._stack = ExitStack()
        self._began = time.monotonic()
        self.out_of_time = False

    @contextmanager
    def processes(self) -> Iterator[dict[str, RoleProcess]]:
        """Start learn and validate; yields them by name. `watch` adds feed, and the users whom it reads."""
        with ExitStack() as stack:
            self._stack = stack
            yield {name: self._role(stack, name, [name]) for name in ("learn", "validate")}

    @contextmanager
    def serving(self, wanted: bool) -> Iterator[dict[str, RoleProcess]]:
        """Start serve, if it is `wanted`, and yield it by name; it runs on when the others have ended."""
        with ExitStack() as stack:
            yield {"serve": self._role(stack, "serve", ["serve"])} if wanted else {}

    def watch(self, roles: dict[str, RoleProcess]) -> Iterator[DemoProgress]:
        """Look at the stores until learning has stopped: by itself, because all clicks are learned, or
        `LIMIT_SECONDS` after version 0, `out_of_time`.

        Users come once there is a version 0: clicks that wait for a learner to start would age all that
        follow. Raises UserError when a process fails, or when no page is served and there is no version
        after `NOTHING_SECONDS`.
        """
        leaving, feed, idle, start = False, None, 0, 0.0
        while True:
            look = self.look()
            yield look
            self._refuse_failure(roles, look)
            if roles["learn"].poll() is not None:
                break
            if feed is None and look.versions:
                roles["feed"] = feed = self._feed(self._stack)
                start = look.seconds
            self.out_of_time = feed is not None and look.seconds - start > LIMIT_SECONDS
            users_left = feed is not None and feed.poll() is not None
            idle = idle + 1 if users_left and self._nothing_waits() else 0
            if (idle >= LEARNED_LOOKS or self.out_of_time) and not leaving:
                roles["learn"].terminate()  # once: a second signal means "at once"
                leaving = True
            time.sleep(LOOK_SECONDS)
        yield from self._last_judgement(roles["validate"])

    def _last_judgement(self, validate: RoleProcess) -> Iterator[DemoProgress]:
        """Looks until the newest version is judged, validate has ended, or it has taken too long."""
        until = time.monotonic() + JUDGE_SECONDS
        while True:
            look = self.look()
            yield look
            judged = look.curves.judged[-1].version if look.curves.judged else -1
            if judged + 1 >= look.versions or validate.poll() is not None or time.monotonic() > until:
                return
            time.sleep(LOOK_SECONDS)

    def _nothing_waits(self) -> bool:
        status = status_at(self._http, self._http.learn_port)
        return status is not None and status.role == "learn" and status.lag_events == 0

    def look(self) -> DemoProgress:
        """Read ledger and versions as they are now."""
        seconds = time.monotonic() - self._began
        return DemoProgress(self._curves.read(), max(self.versions.versions(), default=-1) + 1, seconds)

    def _feed(self, stack: ExitStack) -> RoleProcess:
        users = self._users(stack)
        assert users.stdout is not None
        feed = self._role(stack, "feed", ["feed", "-", "--format", "impressions"], users.stdout)
        users.stdout.close()  # feed holds the only reading end now: users end when feed does
        return feed

    def _role(
        self, stack: ExitStack, name: str, words: list[str], stdin: IO[bytes] | None = None
    ) -> RoleProcess:
        log = stack.enter_context((self._folder / f"{name}.log").open("wb"))
        words = [*words, "--config", str(self._settings)]
        with unbroken():
            role = RoleProcess(name, words, prefix=False, stdin=stdin, log=log)
            stack.callback(_end, role)
        return role

    def _users(self, stack: ExitStack) -> subprocess.Popen[bytes]:
        words = ["--count", str(LISTS), "--rate", str(LISTS_PER_SECOND), "--seed", str(self._seed)]
        log = stack.enter_context((self._folder / "users.log").open("wb"))
        with unbroken():
            users = subprocess.Popen(
                [sys.executable, "-P", "-m", "daemon.demo.users", *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                process_group=0,
                env=os.environ,
            )
            stack.callback(users.wait)  # after the next one
            stack.callback(users.terminate)
        return users

    def _refuse_failure(self, roles: dict[str, RoleProcess], look: DemoProgress) -> None:
        for name, role in roles.items():
            if role.poll() not in (None, 0):
                remedy = f"its messages are in {self._folder / f'{name}.log'}"
                raise UserError(f"{name} ended with exit code {role.poll()}", remedy, EX_SOFTWARE)
        if look.seconds > NOTHING_SECONDS and not look.versions and "serve" not in roles:
            remedy = f"see the logs in {self._folder}; a slower machine may need more time"
            raise UserError(f"nothing was learned within {NOTHING_SECONDS:.0f} s", remedy, EX_TEMPFAIL)


def _end(role: RoleProcess) -> None:
    if role.poll() is None:
        role.terminate()
    role.finish(END_SECONDS)


FILE = "tripletd.toml"
VERSION_EVERY = 10_000
VERSIONS_KEPT = 8
HOLDOUT_SHARE = 0.1
LOG_BYTES = "32MiB"
MIN_DELTA = 0.02
PATIENCE = 15_000
"""Learning stops when so many events have not added MIN_DELTA of mAP to the best version: most of the gain
comes first, and a newcomer has a minute. The defaults run for longer."""


def write_settings(folder: Path, ports: DemoPorts, followed: bool = True) -> Path:
    """Write `folder`/tripletd.toml and return its path; every path in it but the pack's is relative to it.

    `followed`: a server follows the learner's steps while it learns.
    """
    steps = f'retention_bytes = "{LOG_BYTES}"' if followed else "enabled = false   # nobody follows"
    views = load_pack().catalog.space.views
    tables = "\n".join(f'[space.views.{v.name}]\nkind = "dense"\ndim = {v.dim}\n' for v in views)
    path = folder / FILE
    path.write_text(
        f"""# What `tripletd demo` ran. Everything not named here has its default; see deploy/tripletd.toml.
[stream]
address = "log:clicks.log"
retention_bytes = "{LOG_BYTES}"   # what is learned may go

[space]
id = "clothing-1"

{tables}
[catalog]
path = "{CATALOG}"

[feed]
holdout_share = {HOLDOUT_SHARE}   # labels judge here: a tenth of the queries is enough

[checkpoints]
path = "checkpoints"
every_events = {VERSION_EVERY}   # often, so that the curve can be watched
keep = {VERSIONS_KEPT}   # the curve keeps those that are gone

[steps]
{steps}

[validate]
judgments = "labels:{LABELS}"
# Stop when {PATIENCE} events have not added {MIN_DELTA} to the best mAP; the defaults, 20000 and
# 0.002, run for longer.
min_delta = {MIN_DELTA}
patience_events = {PATIENCE}
on_stop = "exit"

[serve]
display = "{DISPLAY}"
aliases = ["stable", "latest"]

[http]
learn_port = {ports.learn}
validate_port = {ports.validate}
serve_port = {ports.serve}
"""
    )
    return path
