"""The programs that the files of deploy/ are checked with, and where they are."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from daemon.serve.http import HttpLimits

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
OPEN_S = HttpLimits().answer_s
"""After its drain a server finishes what is open, for so long at most (`daemon.serve.start`)."""
UNPACKED = ROOT / ".cache" / "prometheus" / "usr" / "bin"


def program(name: str) -> str:
    """The path of a program; where there is none the test is skipped, and fails where nothing may be."""
    found = shutil.which(name) or shutil.which(name, path=UNPACKED)
    if found is None:
        pytest.skip(f"no {name}: run deploy/setup_prometheus.sh")
    return found


def helm() -> str:
    """The path of helm, like `program`."""
    found = shutil.which("helm", path=ROOT / ".cache" / "helm") or shutil.which("helm")
    if found is None:
        pytest.skip("no helm: run deploy/setup_helm.sh")
    return found
