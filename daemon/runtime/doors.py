"""What every port of a process is behind: TLS, tokens, and the rule that nothing is open by oversight."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path

from daemon.config.schema import UNPROTECTED, Config, HttpConfig
from daemon.exits import EX_CONFIG, UserError
from daemon.runtime.logs import get_logger
from daemon.runtime.tls import ReloadedTls, TlsFiles, client_context
from daemon.runtime.tokens import Gate, TokenFile


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
    def context(self) -> ssl.SSLContext | None:
        """For whoever listens."""
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
