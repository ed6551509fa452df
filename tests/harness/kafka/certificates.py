"""Certificates made for one test run, as PEM files: nothing secret is kept in the repository."""

from __future__ import annotations

import datetime
from pathlib import Path

import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

_PAST = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)


class Authority:
    """A certificate authority of its own; files go to `folder`."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self._folder = folder
        self._ca = trustme.CA()
        self.cafile = folder / f"{name}.pem"
        self._ca.cert_pem.write_to_path(self.cafile)

    def issue(self, name: str, *hosts: str, expired: bool = False, user: str | None = None) -> Path:
        """A PKCS#8 key and its chain in one file, as a broker wants it; `user` becomes the common name."""
        day = datetime.timedelta(days=1)
        dates = {"not_before": _PAST, "not_after": _PAST + day} if expired else {}
        leaf = self._ca.issue_cert(*hosts, common_name=user, **dates)
        file = self._folder / f"{name}.pem"
        key = load_pem_private_key(leaf.private_key_pem.bytes(), None)
        chain = b"".join(blob.bytes() for blob in leaf.cert_chain_pems)
        file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) + chain)
        return file


def lock_key(file: Path, password: str) -> Path:
    """A copy whose key is encrypted with a password."""
    text = file.read_bytes()
    key = load_pem_private_key(text, None)
    chain = text[text.index(b"-----BEGIN CERTIFICATE") :]
    locked = file.with_name(f"locked-{file.name}")
    encryption = BestAvailableEncryption(password.encode())
    locked.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption) + chain)
    return locked
