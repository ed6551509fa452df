"""One law for all that comes from outside: no input ends a role, none costs more than a second or 100 MB.

`python -m tests.fuzz.law --seconds N --seed S [--only NAME]` tries every foreign input for N seconds each and
prints how many were tried and which broke the law; `--hex` tries a single input again. `test_law.py` is the
short form.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any

from tests.fuzz.generate import mutated

SECONDS = 1.0
MEGABYTES = 100
MODULES = ("files", "readers", "registry", "answers", "catalogs", "http", "configuration", "events")
"""Modules of `tests.fuzz.foreign`; each has a tuple `INPUTS`."""

TEXTS = [
    "",
    "\ud83d",
    "\udc00x",
    "a\0b",
    "\ufeff",
    "1e999",
    "-0",
    "x" * 100_000,
    "é",
    "../..",
    "\u202e",
    "[[",
    "%s{0}",
]
NUMBERS = [0, -1, 1, 2**31, 2**53 + 1, 2**63, 2**64, -(2**63) - 1, 10**400, 1e308, -1e308, 5e-324, 0.1]
RAW = [
    b"9" * 4_000,
    b"-" + b"9" * 5_000,
    b"1e999",
    b"NaN",
    b"Infinity",
    b"1" + b"0" * 400 + b".5",
    b'"\\ud83d"',
]
RAW += [
    b"[" * 5_000 + b"]" * 5_000,
    b'{"a":' * 2_000 + b"1" + b"}" * 2_000,
    b"[" * 200_000,
    b"{}",
    b"[]",
    b"null",
]


class LawBroken(AssertionError):
    """An input raised what its reader does not document, or cost too much."""


@dataclass(frozen=True)
class ForeignInput:
    """A reader of something that others write.

    `read` gets the bytes and does what the role does with them. `allowed` are the documented exceptions,
    those that the role turns into a message, a dropped record or a retry. `seeds` are good inputs, which are
    changed at random. `worst` are tried as they are: what once broke it, and what looks as if it could.
    """

    name: str
    read: Callable[[bytes], object]
    seeds: tuple[bytes, ...]
    allowed: tuple[type[Exception], ...] = ()
    worst: tuple[bytes, ...] = ()


def obey(foreign: ForeignInput, value: bytes) -> bool:
    """Read the value; true where it was accepted.

    Raises `LawBroken`. Time is this thread's processor time, so that a busy machine does not count; what this
    process had before is not collected in it; and an input that takes too long does so twice.
    """
    accepted, seconds, grown = _read(foreign, value)
    if seconds > SECONDS:
        seconds = min(seconds, _read(foreign, value)[1])
    if seconds > SECONDS:
        raise LawBroken(f"{foreign.name}: {seconds:.1f} s of processor time")
    if grown > MEGABYTES:
        raise LawBroken(f"{foreign.name}: {grown:.0f} MB")
    return accepted


def _read(foreign: ForeignInput, value: bytes) -> tuple[bool, float, float]:
    """Whether the value was accepted; seconds of processor time; megabytes."""
    gc.freeze()
    before, began = _memory(reset=True), time.thread_time()
    accepted = True
    try:
        foreign.read(value)
    except foreign.allowed:
        accepted = False
    except RecursionError as broken:
        raise LawBroken(f"{foreign.name}: RecursionError") from broken
    except Exception as broken:
        raise LawBroken(f"{foreign.name}: {type(broken).__name__}: {broken!s:.200}") from broken
    finally:
        gc.unfreeze()
    return accepted, time.thread_time() - began, (_memory() - before) / 1e6


def drawn(foreign: ForeignInput, rng: Random) -> bytes:
    """A seed with changes, of its bytes or, where it is JSON, of its values."""
    seed = rng.choice(foreign.seeds)
    if rng.random() < 0.6:
        try:
            return json_changed(seed, rng)
        except ValueError:
            pass
    return mutated(seed, rng, rng.choice(foreign.seeds))


def json_changed(value: bytes, rng: Random) -> bytes:
    """JSON with one to three values changed to what nobody expects. Raises `ValueError` for no JSON."""
    tree = json.loads(value)
    slots: dict[str, bytes] = {}
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        tree = _changed(tree, rng, slots)
    written = json.dumps(tree).encode()
    for name, raw in slots.items():
        written = written.replace(f'"{name}"'.encode(), raw)
    return written


def _changed(node: Any, rng: Random, slots: dict[str, bytes]) -> Any:
    if isinstance(node, dict) and node and rng.random() < 0.9:
        key = rng.choice(list(node))
        what = rng.randrange(10)
        if what == 0:
            return {name: value for name, value in node.items() if name != key}
        if what == 1:
            return {rng.choice(TEXTS) if name == key else name: value for name, value in node.items()}
        return {**node, key: _changed(node[key], rng, slots)}
    if isinstance(node, list) and node and rng.random() < 0.8:
        index = rng.randrange(len(node))
        what = rng.randrange(6)
        if what == 0:
            return node[:index] + node[index + 1 :]
        if what == 1:
            return node[:index] + [node[index]] * rng.choice([2, 300]) + node[index:]
        return node[:index] + [_changed(node[index], rng, slots)] + node[index + 1 :]
    what = rng.randrange(6)
    if what == 0:
        slots[name := f"slot{len(slots)}-{rng.random()}"] = rng.choice(RAW)
        return name
    choices: list[list[Any]] = [
        [None, True, False],
        TEXTS,
        NUMBERS,
        [[], {}, [[]], {"": {}}, [None] * 10],
        [str(node)],
    ]
    return rng.choice(choices[what - 1])


def tried(foreign: ForeignInput, rng: Random) -> Iterator[bytes]:
    """First the seeds and the worst, then changed seeds without an end."""
    yield from foreign.seeds
    yield from foreign.worst
    yield from (b"", b"\0", b"\xff\xfe\x00", b"null", b"[]", b"{}", *RAW)
    while True:
        yield drawn(foreign, rng)


def all_inputs() -> list[ForeignInput]:
    """Those of every module."""
    modules = [import_module(f"tests.fuzz.foreign.{name}") for name in MODULES]
    return [foreign for module in modules for foreign in module.INPUTS]


def _memory(reset: bool = False) -> int:
    """The most resident memory since the last reset, in bytes."""
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise OSError("VmHWM is not in /proc/self/status")


def main(arguments: list[str]) -> int:
    """Try every input for a time; the exit code is 1 where the law was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.law")
    parser.add_argument("--seconds", type=float, default=30.0, help="of each input")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="inputs whose name has this in it")
    parser.add_argument("--hex", help="a single input, read as --only says")
    options = parser.parse_args(arguments)
    broken = 0
    for foreign in (one for one in all_inputs() if options.only in one.name):
        values = (
            tried(foreign, Random(options.seed))
            if options.hex is None
            else iter([bytes.fromhex(options.hex)])
        )
        count, accepted, crashes, end = 0, 0, dict[str, bytes](), time.monotonic() + options.seconds
        for value in values:
            try:
                accepted += obey(foreign, value)
            except LawBroken as what:
                crashes.setdefault(str(what), value)
            count += 1
            if time.monotonic() > end:
                break
        broken += len(crashes)
        sys.stdout.write(
            f"{foreign.name:<40}{count:>10,} tried{accepted:>10,} accepted{len(crashes):>6} broken\n"
        )
        for message, value in crashes.items():
            sys.stdout.write(f"  {message}\n  --hex {value[:2_000].hex()}\n")
        sys.stdout.flush()
    return int(broken > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
