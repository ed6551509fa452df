"""A server of S3's protocol for the tests that ask for it; `tests/conftest.py` makes it visible to all."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.harness.s3_faults import S3Proxy
    from tests.harness.s3_server import S3Server


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    """One for all tests of a worker: each takes a prefix of its own."""
    from tests.harness.s3_server import s3_server, server_program

    if server_program() is None:
        pytest.skip("there is no S3 server (make buckets)")
    with tempfile.TemporaryDirectory(prefix="tripletd-s3-") as folder, s3_server(Path(folder)) as server:
        yield server


@pytest.fixture
def proxy(s3: S3Server) -> Iterator[S3Proxy]:
    """What breaks the connections to it."""
    from tests.harness.s3_faults import s3_proxy

    with s3_proxy(s3.url) as running:
        yield running


@pytest.fixture
def prefix() -> str:
    """A place in the bucket that nobody else uses."""
    import os

    return f"place-{os.urandom(6).hex()}"
