"""TLS of the ports: one context of the standard library, whose certificate is read again while it is used.

TLS 1.2 at least, with the library's own choice of ciphers. Whoever is connected stays so; a new handshake
gets the new certificate. Client certificates admit, they do not tell who asks: that is said by tokens.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from daemon.exits import EX_CONFIG, UserError


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files. certificate: ours, with those that lead to its authority. key: its private key, "" where it
    is in the same file. client_ca: authorities of client certificates, which all then need; "" for none.
    """

    certificate: str
    key: str = ""
    client_ca: str = ""


class ReloadedTls:
    """`context` for every port of the process; `reload` reads the files again."""

    def __init__(self, files: TlsFiles) -> None:
        self._files = files
        self.context = _context(files)

    def reload(self) -> None:
        """Take the files over for handshakes from now on. Raises UserError 78, and then nothing changes.

        Authorities of clients are added; one that was taken out is trusted until a restart.
        """
        _context(self._files)  # whether they are whole and go together: a failed load would leave a mixture
        _load(self.context, self._files)


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
    _load(context, files)
    return context


def _load(context: ssl.SSLContext, files: TlsFiles) -> None:
    _read(
        lambda: context.load_cert_chain(files.certificate, files.key or None, _no_password),
        files.certificate,
        files.key,
    )
    if files.client_ca:
        _read(lambda: context.load_verify_locations(files.client_ca), files.client_ca)


def _no_password() -> str:
    """Nobody is there to type one, and OpenSSL would ask at the terminal."""
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
