"""Where no thread can be started that is said, with the limit; nothing waits for ever."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pyarrow
import pyarrow.csv
import pyarrow.parquet
import pytest

from daemon.exits import EX_TEMPFAIL, as_user_error
from streams.threads import ThreadLimit, check_threads

LIMITED = """
import os, resource, sys
import pyarrow.dataset, pyarrow.compute, pyarrow.csv, pyarrow.parquet
from streams.tables import Table
from streams.threads import ThreadLimit
if os.getuid() == 0:  # whom no limit binds
    os.setgroups([])
    os.setgid(54321)
resource.setrlimit(resource.RLIMIT_NPROC, (int(sys.argv[2]),) * 2)
if os.getuid() == 0:
    os.setuid(54321)
try:
    table = Table(sys.argv[1])
    print(table.rows(), sum(len(batch.columns["id"]) for batch in table.batches(["id"])))
except ThreadLimit as error:
    print(error)
"""


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_a_table_under_a_limit_of_processes_is_no_hang(kind: str) -> None:
    """Arrow waits for ever for its second thread (Parquet), or its third (CSV)."""
    limit = "3" if kind == "parquet" else "4"
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)  # for a user without rights
        path, rows = Path(folder, f"t.{kind}"), pyarrow.table({"id": ["a", "b"]})
        (pyarrow.parquet.write_table if kind == "parquet" else pyarrow.csv.write_csv)(rows, path)
        command = [sys.executable, "-c", LIMITED, str(path), limit]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert "no further thread can be started" in done.stdout
    assert f"processes of a user (ulimit -u): {limit}" in done.stdout


def test_so_many_threads_are_there() -> None:
    check_threads(20)


def test_a_pipe_that_does_not_wait_is_no_limit_of_threads() -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with open(reader, "rb"), open(writer, "wb") as file:
        with pytest.raises(BlockingIOError) as caught:
            file.write(bytes(1 << 20))
        os.set_blocking(writer, True)
        os.read(reader, 1 << 20)
    said = as_user_error(caught.value)
    assert said is not None
    assert "non-blocking" in said.message
    assert said.code == EX_TEMPFAIL


@pytest.mark.parametrize(
    "error",
    [
        ThreadLimit(),
        RuntimeError("can't start new thread"),
        BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"),
    ],
)
def test_a_thread_or_a_child_that_cannot_be_started_is_no_bug(error: Exception) -> None:
    said = as_user_error(error)
    assert said is not None
    assert said.code == EX_TEMPFAIL
    assert "LimitNPROC" in said.remedy
