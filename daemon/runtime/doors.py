"""What every port of a process is behind: TLS, tokens, and the rule that nothing is open by oversight.

TLS is one context of the standard library, 1.2 at least, with the library's own choice of ciphers. Client
certificates admit, they do not tell who asks: that is said by tokens.

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
import ssl
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import structlog

from daemon.config.schema import UNPROTECTED, Config, HttpConfig
from daemon.exits import EX_CANTCREAT, EX_CONFIG, EX_DATAERR, EX_USAGE, UserError
from daemon.runtime.logs import get_logger
from streams.durable import replacing


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files. certificate: ours, with those that lead to its authority. key: its private key, "" where it
    is in the same file. client_ca: authorities of client certificates, which all then need; "" for none.
    """

    certificate: str
    key: str = ""
    client_ca: str = ""


class ReloadedTls:
    """`context` for each new connection of the process; `reload` reads the files again, into another one.

    To load new files into a context that is in use would give a handshake amid it the new certificate with
    the old key. And a context remembers sessions: a client whose authority was taken out would resume one.
    """

    def __init__(self, files: TlsFiles) -> None:
        self._files = files
        self._newest = _context(files)

    def context(self) -> ssl.SSLContext:
        """For a connection that is made now."""
        return self._newest

    def reload(self) -> None:
        """Take the files over for handshakes from now on. Raises UserError 78, and then nothing changes."""
        self._newest = _context(self._files)


def client_context(files: TlsFiles) -> ssl.SSLContext:
    """For a process that asks another one with the same files: it trusts that certificate alone, whatever
    name it has, and shows it where clients have to show one."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False  # it asks by address, and knows the certificate itself
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    _read(lambda: context.load_verify_locations(files.certificate), files.certificate)
    if files.client_ca:
        own = partial(context.load_cert_chain, files.certificate, files.key or None, _no_password)
        _read(own, files.certificate, files.key)
    return context


def _context(files: TlsFiles) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    if files.client_ca:
        context.verify_mode = ssl.CERT_REQUIRED
        context.options |= ssl.OP_NO_TICKET  # a certificate is looked at by every handshake
        context.num_tickets = 0
    chain = files.certificate, files.key or None, _no_password
    _read(lambda: context.load_cert_chain(*chain), files.certificate, files.key)
    if files.client_ca:
        _read(lambda: context.load_verify_locations(files.client_ca), files.client_ca)
    return context


def _no_password() -> str:
    raise ValueError("the key is encrypted")


def _read(load: Callable[[], object], *paths: str) -> None:
    """Load what is in these files. Raises UserError naming the file."""
    remedy = "http.tls_certificate, tls_key and tls_client_ca name PEM files; a key has no password"
    named = " and ".join(filter(None, paths))
    try:
        load()
    except FileNotFoundError:
        gone = next((path for path in paths if path and not Path(path).exists()), named)
        raise UserError(f"{gone} is not there", remedy, EX_CONFIG) from None
    except ssl.SSLError as error:
        said = (error.reason or str(error)).lower().replace("_", " ")
        raise UserError(f"{named} cannot be used for TLS: {said}", remedy, EX_CONFIG) from None
    except OSError as error:
        raise UserError(f"{named} cannot be read: {error.strerror}", remedy, EX_CONFIG) from None
    except ValueError as error:
        raise UserError(f"{named} cannot be used for TLS: {error}", remedy, EX_CONFIG) from None


ASK, CLICK, PROMOTE, METRICS = SCOPES = ("ask", "click", "promote", "metrics")
"""Questions and the page; impressions and clicks; names and versions; numbers and status of a role."""
KEYED_SCOPES = frozenset((ASK, CLICK))
"""What can be limited to keys: the others are about all of them."""
SINGLE_TOKEN, WRITES_TOKEN = "http.token", "serve.writes.token"
"""Names of the tokens that a configuration has."""
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

    @property
    def holder(self) -> str | None:
        """Who it was given to; None for a token of the configuration, which many share."""
        return None if self.name in (SINGLE_TOKEN, WRITES_TOKEN) else self.name


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
        self._checked_at = clock()

    def tokens(self) -> Sequence[KeptToken]:
        """All of them."""
        if self._clock() - self._checked_at >= LOOK_SECONDS:
            self.reload()
        return self._tokens

    def reload(self) -> None:
        """Read the file again if it is another one."""
        with self._lock:
            self._checked_at, mark = self._clock(), _mark(self._path)
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
        if single:
            scopes = SCOPES if file is not None else (PROMOTE,)
            self._fixed.append(
                KeptToken(Grant(SINGLE_TOKEN, frozenset(scopes)), digest_of(single.encode()), "")
            )
        if writes:
            grant = Grant(WRITES_TOKEN, frozenset((CLICK,)))
            self._fixed.append(KeptToken(grant, digest_of(writes.encode()), ""))
        self.needed = frozenset(SCOPES if file is not None else (PROMOTE, CLICK) if writes else (PROMOTE,))
        """Scopes that need a token."""
        self.shut = frozenset(() if file is not None or single else (PROMOTE,))
        """Scopes of them for which there can be none."""

    def __repr__(self) -> str:
        return "Gate(...)"

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
    """Put a new token into the file, which is made if it does not exist. Returns the token; it is shown only
    once.

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
    mode = path.stat().st_mode & 0o640 if path.exists() else 0o600
    with replacing(path, mode) as file:
        file.write(json.dumps({"tokens": rows}, indent=2).encode() + b"\n")


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


@dataclass(frozen=True, slots=True)
class Doors:
    """tls: None without it. gate: who may do what."""

    tls: ReloadedTls | None = None
    gate: Gate = field(default_factory=Gate)

    @property
    def scheme(self) -> str:
        """Of URLs of the ports."""
        return "http" if self.tls is None else "https"

    @property
    def context(self) -> Callable[[], ssl.SSLContext] | None:
        """Returns the context of TLS for a new connection; None without TLS."""
        return None if self.tls is None else self.tls.context

    def reload(self) -> None:
        """Read certificate and tokens again; what cannot be used is logged, and the old stays."""
        self.gate.reload()
        if self.tls is None:
            return
        try:
            self.tls.reload()
        except UserError as error:
            get_logger().error("the certificate is not taken over, the old one stays", problem=str(error))
        else:
            get_logger().info("certificate read again")


def open_doors(config: Config) -> Doors:
    """The doors as they are configured. Raises UserError 78: files that cannot be used, or a port that would
    be open to a network without TLS and tokens where nobody has said so."""
    http = config.http
    files = tls_files(http)
    tls = ReloadedTls(files) if files is not None else None
    tokens = TokenFile(Path(http.tokens)) if http.tokens else None
    _refuse_unprotected(http)
    writes = config.serve.writes.token.get_secret_value()
    return Doors(tls, Gate(tokens, http.token.get_secret_value(), writes))


def tls_files(http: HttpConfig) -> TlsFiles | None:
    """The files of TLS; None without it."""
    return TlsFiles(http.tls_certificate, http.tls_key, http.tls_client_ca) if http.tls_certificate else None


def context_to_ask(http: HttpConfig) -> ssl.SSLContext | None:
    """For asking another role of this configuration; None without TLS. Raises UserError 78."""
    files = tls_files(http)
    return None if files is None else client_context(files)


def _refuse_unprotected(http: HttpConfig) -> None:
    if is_loopback(http.host) or (http.tls_certificate and http.tokens):
        return
    missing = [name for name in ("tls_certificate", "tokens") if not getattr(http, name)]
    lacking = " and ".join(f"http.{name}" for name in missing)
    if http.unprotected == UNPROTECTED:
        get_logger().warning("the port is open to a network", host=http.host, without=lacking)
        return
    raise UserError(
        f"http.host {http.host} can be reached from a network, and {lacking} is not set",
        f'set it, listen on 127.0.0.1 behind a proxy, or say so in words: http.unprotected = "{UNPROTECTED}"',
        EX_CONFIG,
    )


def is_loopback(host: str) -> bool:
    """Whether an address to listen on is reached from this machine alone."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"
