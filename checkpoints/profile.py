"""Keys of the shared credentials file of AWS, for clients that read the environment and the instance alone.

The file is what `aws configure` writes and what an agent renews: it is read again each time the client asks,
so keys that expired are replaced by those that somebody puts there, without a restart.
"""

from __future__ import annotations

import configparser
import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

RENEW = timedelta(seconds=60)
"""How long keys are used before the file is read again."""

_OTHER_WAYS = (
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)
"""Variables that say where keys come from, in the order of the AWS SDKs; the client knows them itself."""


def profile_keys(environ: Mapping[str, str] = os.environ) -> Callable[[], dict[str, Any]] | None:
    """What gives the keys of the profile, as obstore's S3CredentialProvider; None where the environment names
    another way, or no file has the profile (then an instance's own role is left).
    """
    if any(environ.get(name) for name in _OTHER_WAYS):
        return None
    given = environ.get("AWS_SHARED_CREDENTIALS_FILE")
    path = Path(given).expanduser() if given else Path.home() / ".aws" / "credentials"
    name = environ.get("AWS_PROFILE") or "default"
    if _read(path, name) is None:
        return None
    return lambda: _credential(path, name)


def _credential(path: Path, name: str) -> dict[str, Any]:
    keys = _read(path, name)
    if keys is None:
        raise ValueError(f"{path} has no keys of profile {name!r} any more")
    return {
        "access_key_id": keys["aws_access_key_id"],
        "secret_access_key": keys["aws_secret_access_key"],
        "token": keys.get("aws_session_token"),
        "expires_at": datetime.now(UTC) + RENEW,
    }


def _read(path: Path, name: str) -> Mapping[str, str] | None:
    parser = configparser.RawConfigParser()
    try:
        parser.read_string(path.read_text(encoding="utf-8"))
        keys = dict(parser[name])
    except (OSError, UnicodeDecodeError, configparser.Error, KeyError):
        return None
    return keys if {"aws_access_key_id", "aws_secret_access_key"} <= keys.keys() else None
