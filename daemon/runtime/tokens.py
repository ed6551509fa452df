"""Tokens: who may do what over HTTP, for which keys; a file holds their hashes, and is read again.

A token is 256 random bits, so one SHA-256 of it is all that a file needs to hold. A slow hash (scrypt,
argon2) protects secrets that people choose, by making each guess dear; nobody guesses 256 bits, and it would
cost every request tens of milliseconds and megabytes.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import json
import os
import re
import secrets
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import structlog

from daemon.exits import EX_CANTCREAT, EX_CONFIG, EX_DATAERR, EX_USAGE, UserError

ASK, CLICK, PROMOTE, METRICS = SCOPES = ("ask", "click", "promote", "metrics")
"""Questions and the page; impressions and clicks; names and versions; numbers and status of a role."""
KEYED_SCOPES = frozenset((ASK, CLICK))
"""What can be limited to keys: the others are about all of them."""
PREFIX = "tpd_"
"""Of every token made here, so that a search for leaked secrets finds one."""
LOOK_SECONDS = 1.0
"""How soon a changed file counts."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

log = structlog.get_logger("tripletd.tokens")


@dataclass(frozen=True, slots=True)
class Grant:
    """What a token opens. name: who it was given to, for the ledger. keys: None for all."""

    name: str
    scopes: frozenset[str]
    keys: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class KeptToken:
    """A token as its file has it. digest: SHA-256 of the token. added: when, ISO 8601."""

    grant: Grant
    digest: bytes
    added: str


class TokenFile:
    """The tokens of a file as they are now: it is looked at again at most every `LOOK_SECONDS`.

    A file that is gone opens nothing. One that cannot be read, or holds something else, changes nothing and
    is logged: a slip of the hand shuts nobody out.
    """

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._path, self._clock = path, clock
        self._lock = threading.Lock()
        self._mark = _mark(path)
        self._tokens: Sequence[KeptToken] = read_tokens(path)
        self._looked = clock()

    def tokens(self) -> Sequence[KeptToken]:
        """All of them."""
        if self._clock() - self._looked >= LOOK_SECONDS:
            self.reload()
        return self._tokens

    def reload(self) -> None:
        """Read the file again if it is another one."""
        with self._lock:
            self._looked, mark = self._clock(), _mark(self._path)
            if mark == self._mark:
                return
            self._mark = mark
            if mark is None:
                self._tokens = ()
                log.error("the file of tokens is gone: nobody is let in", path=str(self._path))
                return
            try:
                self._tokens = read_tokens(self._path)
            except UserError as error:
                log.error("the file of tokens is not taken over, the old ones stay", problem=str(error))
            else:
                log.info("tokens read again", count=len(self._tokens))


class Gate:
    """Which token opens what. file: tokens of all kinds, None where there is none: then questions and metrics
    need none. single: that of `http.token`, "" for none; writes: that of `serve.writes.token`.
    """

    def __init__(self, file: TokenFile | None = None, single: str = "", writes: str = "") -> None:
        self._file = file
        self._fixed: list[KeptToken] = []
        self._writes_alone = bool(writes)
        if single:
            scopes = SCOPES if file is not None else (PROMOTE,)
            self._fixed.append(
                KeptToken(Grant("http.token", frozenset(scopes)), digest_of(single.encode()), "")
            )
        if writes:
            grant = Grant("serve.writes.token", frozenset((CLICK,)))
            self._fixed.append(KeptToken(grant, digest_of(writes.encode()), ""))
        self._single = bool(single)

    def __repr__(self) -> str:
        return "Gate(...)"

    def needs(self, scope: str) -> bool:
        """Whether a token is needed at all."""
        return self._file is not None or scope == PROMOTE or (scope == CLICK and self._writes_alone)

    def is_shut(self, scope: str) -> bool:
        """Whether there can be no token for it."""
        return scope == PROMOTE and self._file is None and not self._single

    def grant(self, token: bytes) -> Grant | None:
        """What a token opens, None for one that is not known. The time it takes tells nothing: hashes are
        compared, each whole, and all of them."""
        digest, found = digest_of(token), None
        for one in (*self._fixed, *(self._file.tokens() if self._file is not None else ())):
            if hmac.compare_digest(digest, one.digest):
                found = one.grant
        return found

    def reload(self) -> None:
        """Read the file again now."""
        if self._file is not None:
            self._file.reload()


def digest_of(token: bytes) -> bytes:
    """What is kept of a token."""
    return hashlib.sha256(token).digest()


def read_tokens(path: Path) -> list[KeptToken]:
    """The tokens of a file. Raises UserError 78 where it cannot be read or is something else."""
    try:
        raw = json.loads(path.read_bytes())
        return [_token(one) for one in raw["tokens"]]
    except OSError as error:
        remedy = "make one with `tripletd tokens add`, or correct http.tokens"
        raise UserError(f"{path} cannot be read: {error.strerror}", remedy, EX_CONFIG) from None
    except (ValueError, KeyError, TypeError) as error:
        message = f"{path} is no file of tokens: {type(error).__name__}: {error}"
        raise UserError(
            message, "put it back, or make another with `tripletd tokens add`", EX_CONFIG
        ) from None


def add_token(path: Path, name: str, scopes: Collection[str], keys: Collection[str] = ()) -> str:
    """Put a new token into the file, which is made where there is none; the token, told this once.

    Raises UserError: 64 for a name that is taken or unfit, scopes that there are not, or keys that do not go
    with them; 73 where the file cannot be written.
    """
    if not _NAME.fullmatch(name):
        raise UserError(
            f"{name[:80]!r} is no name", "use letters, digits, dots, dashes, underscores", EX_USAGE
        )
    unknown = sorted(set(scopes) - set(SCOPES))
    if unknown or not scopes:
        found = f"there is no scope {unknown[0]!r}" if unknown else "a token without a scope opens nothing"
        raise UserError(found, f"use --scope with {', '.join(SCOPES)}", EX_USAGE)
    whole = sorted(set(scopes) - KEYED_SCOPES)
    if keys and whole:
        message = f"the scope {whole[0]} is about all keys"
        raise UserError(message, "give --key with the scopes ask and click alone", EX_USAGE)
    token = PREFIX + secrets.token_urlsafe(32)
    grant = Grant(name, frozenset(scopes), frozenset(keys) if keys else None)
    added = datetime.now(UTC).isoformat(timespec="seconds")
    with _changing(path) as tokens:
        if any(one.grant.name == name for one in tokens):
            remedy = f"choose another name, or remove it first: tripletd tokens remove {name}"
            raise UserError(f"there is a token called {name}", remedy, EX_USAGE)
        tokens.append(KeptToken(grant, digest_of(token.encode()), added))
    return token


def remove_token(path: Path, name: str) -> None:
    """Take a token out of the file. Raises UserError: 65 where there is none of that name."""
    with _changing(path) as tokens:
        kept = [one for one in tokens if one.grant.name != name]
        if len(kept) == len(tokens):
            raise UserError(f"there is no token called {name[:80]}", "see `tripletd tokens list`", EX_DATAERR)
        tokens[:] = kept


@contextmanager
def _changing(path: Path) -> Iterator[list[KeptToken]]:
    """The tokens of a file, which are written back at the end; one change at a time."""
    try:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            tokens = read_tokens(path) if path.exists() else []
            yield tokens
            _write(path, tokens)
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        message = f"{path} cannot be written: {error.strerror}"
        raise UserError(message, "correct http.tokens, or the rights of its folder", EX_CANTCREAT) from None


def _write(path: Path, tokens: Sequence[KeptToken]) -> None:
    rows = []
    for one in tokens:
        row: dict[str, Any] = {"name": one.grant.name, "sha256": one.digest.hex()}
        row["scopes"] = [scope for scope in SCOPES if scope in one.grant.scopes]
        if one.grant.keys is not None:
            row["keys"] = sorted(one.grant.keys)
        rows.append({**row, "added": one.added})
    new = path.with_name(f"{path.name}.{secrets.token_hex(4)}.new")
    mode = path.stat().st_mode & 0o640 if path.exists() else 0o600
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            json.dump({"tokens": rows}, file, indent=2)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, path)
    except BaseException:
        with suppress(OSError):
            new.unlink()
        raise


def _token(row: dict[str, Any]) -> KeptToken:
    digest, scopes, keys = bytes.fromhex(row["sha256"]), frozenset(row["scopes"]), row.get("keys")
    if len(digest) != hashlib.sha256().digest_size:
        raise ValueError("a sha256 has 64 hexadecimal digits")
    if not isinstance(row["scopes"], list) or not scopes <= set(SCOPES):
        raise ValueError(f"scopes are a list of {', '.join(SCOPES)}")
    if keys is not None and (not isinstance(keys, list) or not scopes <= KEYED_SCOPES):
        raise ValueError("keys are a list, and go with the scopes ask and click alone")
    if not isinstance(row["name"], str) or not _NAME.fullmatch(row["name"]):
        raise ValueError("a name has letters, digits, dots, dashes and underscores")
    grant = Grant(row["name"], scopes, None if keys is None else frozenset(map(str, keys)))
    return KeptToken(grant, digest, str(row.get("added", "")))


def _mark(path: Path) -> tuple[int, int, int] | None:
    """What another content changes; None where there is no file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
