"""A folder as old as asked for, and what every role and command costs on it: a year is no heavier than a day.

`python -m tests.soak.long_history VERSIONS [unfolded]` prints the figures of one such folder. The folder is a
real one of some versions whose entries are multiplied, one version every 30 s up to now: folded as the
learner leaves it, or, as old releases left theirs, one file per entry.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from checkpoints import Ledger, LedgerEntry, LocalStore, Manifest, VersionStore
from checkpoints.ledger import folded_bytes, folded_key
from checkpoints.manifest import seal, unseal
from checkpoints.pruned import FIELDS, sealed_lines, tail_key
from checkpoints.pruned import folded_key as history_key
from checkpoints.retention import FOLD_EVERY, LEAVE
from checkpoints.store import folder, ledger_key, manifest_key
from checkpoints.thinning import by_age
from tests.daemon.test_up import CONFIG, ROOT, clicks
from tests.harness import forked
from tests.harness.kafka.ports import free_ports
from tests.harness.kill.tally import Tally
from tests.harness.wakes import wakes_a_second

EVERY_S = 30.0
IDLE_S = 20.0
WAIT_S = 600.0
TAIL_LINES = 400


@dataclass(frozen=True)
class Bars:
    """The most that a folder of any age may cost; `more_mb`: above a young one. wakes: of all threads of a
    role, per second.
    """

    idle: float = 0.02
    wakes: float = 40.0
    mb: float = 300.0
    more_mb: float = 60.0
    start_s: float = 5.0
    curves_s: float = 1.0
    status_s: float = 2.0


@dataclass
class Cost:
    """What one folder costs: processor seconds of start, idle share of a core, wake-ups of its threads per
    second and resident MB by role; processor seconds by request and by command; bytes of the CSV.
    """

    start_s: dict[str, float] = field(default_factory=dict)
    idle: dict[str, float] = field(default_factory=dict)
    wakes: dict[str, float] = field(default_factory=dict)
    resident_mb: dict[str, float] = field(default_factory=dict)
    asked_s: dict[str, float] = field(default_factory=dict)
    csv_bytes: int = 0


def young_folder(root: Path) -> Path:
    """A configuration whose folder holds some learned and judged versions; rests at the end of its topic."""
    config = root / "tripletd.toml"
    names = ("learn_port", "validate_port", "serve_port")
    ports = dict(zip(names, free_ports(len(names)), strict=True))
    told = CONFIG + "[checkpoints]\nevery_events = 10\n"
    for name, port in ports.items():
        told = told.replace(f"{name} = 0", f"{name} = {port}")
    config.write_text(told)
    (root / "clicks.jsonl").write_text(clicks(200))
    for words in (["feed", str(root / "clicks.jsonl")], ["up", "--exit-when-caught-up"]):
        forked.run(command(config, words), cwd=ROOT, check=True, capture_output=True, timeout=WAIT_S)
    return config


def grow_old(config: Path, count: int, *, folded: bool = True) -> None:
    """Let the folder have written `count` versions, the newest of which are its own, one every EVERY_S."""
    store = LocalStore(config.parent / "checkpoints")
    versions, ledger = VersionStore(store), Ledger(store)
    kept, entries = versions.versions(), ledger.entries()
    by = count - kept[-1] - 1
    now = datetime.now(UTC)

    def at(number: int) -> str:
        return (now - timedelta(seconds=EVERY_S * (count - number))).isoformat(timespec="milliseconds")

    manifests = {number: versions.manifest(number) for number in kept}
    pattern = [entry for entry in entries if entry.kind == "KEEP" and entry.version]
    line = json.loads(manifests[kept[-1]].to_json())
    _renumber(store, manifests, by, at)
    shutil.rmtree(store.root / "ledger")
    moved = [entry for entry in entries if entry.kind != "KEEP" or not entry.version]
    head = [
        replace(e, n=n, version=0 if not e.version else e.version + by, at=at(1))
        for n, e in enumerate(moved, 1)
    ]
    first = len(head)

    def judged(number: int) -> LedgerEntry:
        n = number + first
        return replace(pattern[number % len(pattern)], n=n, version=number, at=at(number))

    numbers = range(1, count)
    times = {number: now.timestamp() - EVERY_S * (count - number) for number in numbers}
    last = judged(count - 1).n
    if not folded:
        for entry in (*head, *map(judged, numbers)):
            store.put_new(ledger_key(entry.n), [entry.to_json()], durable=False)
        with (store.root / "history.jsonl").open("w") as out:
            out.writelines(_line(line, number, number - 1, at) + "\n" for number in range(1, kept[1] + by))
        return
    through = last - LEAVE - FOLD_EVERY
    stay = by_age([n for n in numbers if judged(n).n <= through], times.__getitem__, now.timestamp())
    for end in (through - 1, through):
        kept_entries = [*head, *(one for one in map(judged, stay) if one.n <= end)]
        store.put_new(folded_key(end), [folded_bytes(end, (one.record() for one in kept_entries))])
    for number in range(through + 1 - first, count):
        store.put_new(ledger_key(judged(number).n), [judged(number).to_json()], durable=False)
    pruned = range(1, kept[1] + by)
    stay = by_age(pruned[:-TAIL_LINES], times.__getitem__, now.timestamp())
    told = [
        json.loads(_line(line, number, before, at)) for before, number in zip([0, *stay], stay, strict=False)
    ]
    short = ({name: one[name] for name in FIELDS} for one in told)
    store.put_new(history_key(1), sealed_lines(1, 0, short))
    with (store.root / tail_key(1)).open("w") as out:
        out.writelines(_line(line, number, number - 1, at) + "\n" for number in pruned[-TAIL_LINES:])


def _line(pattern: dict[str, Any], number: int, parent: int, at: Callable[[int], str]) -> str:
    said = {"number": number, "parent": parent, "created": at(number)}
    counters = {name: value + number for name, value in pattern["counters"].items()}
    return json.dumps(pattern | said | {"counters": counters}, separators=(",", ":"))


def _renumber(store: LocalStore, manifests: dict[int, Manifest], by: int, at: Callable[[int], str]) -> None:
    """Every version but the first has a number that is higher by `by`; claims go."""
    for path in sorted((store.root / "versions").iterdir(), reverse=True):
        number = int(path.name)
        if number not in manifests:
            shutil.rmtree(path)
        elif number:
            target = store.root / folder(number + by)
            path.rename(target)
            old = manifests[number]
            parent = old.parent + by if old.parent else number + by - 1
            manifest = replace(old, number=number + by, parent=parent, created=at(number + by))
            (store.root / manifest_key(number + by)).write_bytes(manifest.to_json())
            for record in target.glob("*.json"):
                if record.name != "manifest.json":
                    told = unseal(record.read_bytes(), record.name) | {"number": number + by}
                    record.write_bytes(seal(told))


def cost_of(config: Path) -> Cost:
    """Start every role once, alone; ask `serve` and the commands for what they tell."""
    found = Cost()
    for role in ("learn", "validate", "serve"):
        with RunningRole(config, role) as (process, port, began):
            found.start_s[role] = round(began, 1)
            time.sleep(IDLE_S / 2)  # what a start leaves to do
            _folded(config)
            before, then = _processor_s(process.pid), time.monotonic()
            found.wakes[role] = round(wakes_a_second(process.pid, IDLE_S), 1)
            found.idle[role] = round((_processor_s(process.pid) - before) / (time.monotonic() - then), 4)
            if role == "serve":
                for path in ("/v1/versions", "/v1/page/curves", "/v1/page/curves.csv", "/v1/page/versions"):
                    before = _processor_s(process.pid)
                    body = urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=WAIT_S).read()
                    found.asked_s[path] = round(_processor_s(process.pid) - before, 2)
                    found.csv_bytes = len(body) if path.endswith("csv") else found.csv_bytes
            found.resident_mb[role] = _resident_mb(process.pid)
    for words in (["status"], ["models", "list"], ["curves"]):
        begun = os.times()
        subprocess.run(command(config, words), cwd=ROOT, check=True, capture_output=True, timeout=WAIT_S)
        now = os.times()
        spent = now.children_user + now.children_system - begun.children_user - begun.children_system
        found.asked_s[f"tripletd {' '.join(words)}"] = round(spent, 2)
    return found


class RunningRole:
    """One role until it is ready: (process, port, seconds until then by its own processor time).

    start: what starts it, as `subprocess.Popen` does.
    """

    def __init__(
        self, config: Path, role: str, start: Callable[..., subprocess.Popen[bytes]] = subprocess.Popen
    ) -> None:
        self._config, self._role, self._start = config, role, start

    def __enter__(self) -> tuple[subprocess.Popen[bytes], int, float]:
        self._log = (self._config.parent / f"{self._role}.log").open("wb")
        self._process = self._start(command(self._config, [self._role]), cwd=ROOT, stderr=self._log)
        key = f"{self._role}_port = "
        port = int(self._config.read_text().partition(key)[2].split()[0])
        deadline = time.monotonic() + WAIT_S
        while not is_ready(port):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.__exit__()
                raise AssertionError(f"{self._role} is not ready: {Path(self._log.name).read_text()[-2000:]}")
            time.sleep(0.05)
        return self._process, port, _processor_s(self._process.pid)

    def __exit__(self, *exc: object) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        self._process.wait(60)
        self._log.close()


def _folded(config: Path) -> None:
    """Return once the learner has folded the ledger of an earlier program."""
    ledger = config.parent / "checkpoints" / "ledger"
    deadline = time.monotonic() + WAIT_S
    while sum(1 for _ in ledger.iterdir()) > LEAVE + 2 * FOLD_EVERY:
        assert time.monotonic() < deadline, "the ledger is not folded"
        time.sleep(1.0)


def command(config: Path, words: list[str]) -> list[str]:
    return [sys.executable, "-m", "daemon", *words, "--config", str(config)]


def is_ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def _processor_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _resident_mb(pid: int) -> float:
    (line,) = (one for one in Path(f"/proc/{pid}/status").read_text().splitlines() if one.startswith("VmRSS"))
    return round(int(line.split()[1]) / 1024, 1)


def long_history(root: Path, count: int, bars: Bars = Bars()) -> Tally:
    """A folder that has written `count` versions against one that has written some."""
    config = young_folder(root)
    young = cost_of(config)
    grow_old(config, count)
    old = cost_of(config)
    tally = Tally(f"a folder of {count:,} versions, folded")
    for what, bad in _over(young, old, bars):
        with tally.case(what):
            assert not bad, f"{bad}; {old}"
    tally.worst = _told(young, old)
    return tally


def _told(young: Cost, old: Cost) -> str:
    def of(name: str, form: str) -> str:
        return " ".join(f"{role} {value:{form}}" for role, value in getattr(old, name).items())

    return (
        f"idle {of('idle', '.1%')} (young {max(young.idle.values()):.1%}); "
        f"wake-ups a second {of('wakes', '.0f')}; "
        f"{max(old.resident_mb.values()):.0f} MB (young {max(young.resident_mb.values()):.0f}); "
        f"start {max(old.start_s.values()):.1f} s; curves {old.asked_s['/v1/page/curves']:.2f} s; "
        f"status {old.asked_s['tripletd status']:.2f} s"
    )


def _over(young: Cost, old: Cost, bars: Bars) -> Iterator[tuple[str, str]]:
    """Each bar with what is over it, "" where nothing is."""
    for role in old.idle:
        yield f"{role}, idle", f"{old.idle[role]:.1%}" if old.idle[role] > bars.idle else ""
        woken = old.wakes[role]
        yield f"{role}, wake-ups", f"{woken:.0f} a second" if woken > bars.wakes else ""
        held, more = old.resident_mb[role], old.resident_mb[role] - young.resident_mb[role]
        over = held > bars.mb or more > bars.more_mb
        yield f"{role}, memory", f"{held:.0f} MB, {more:.0f} more than a young one" if over else ""
        start = old.start_s[role]
        yield f"{role}, start", f"{start:.1f} s" if start > max(bars.start_s, young.start_s[role] + 1) else ""
    for what, limit in (("/v1/page/curves", bars.curves_s), ("tripletd status", bars.status_s)):
        late = old.asked_s[what] > max(limit, young.asked_s[what] + limit / 2)
        yield what, f"{old.asked_s[what]:.2f} s" if late else ""


def main() -> None:
    """Print the figures of a young folder, or of one of so many versions."""
    count = int(sys.argv[1])
    with tempfile.TemporaryDirectory(prefix="tripletd-long-") as place:
        config = young_folder(Path(place))
        if count:
            grow_old(config, count, folded="unfolded" not in sys.argv)
        sys.stdout.write(f"{cost_of(config)}\n")


if __name__ == "__main__":
    main()
