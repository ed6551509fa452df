"""Compile every kernel before the tests begin: `python -m tests.harness.warm`.

The workers of a run would each compile all of them at the same time. Here two processes begin at the two ends
of one list and find in the cache what the other has done. With a full cache this takes a few seconds.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

FOLDERS = ("learners/kernels", "streams/compiled")


def modules() -> list[str]:
    """Every module of compiled code."""
    files = [file for folder in FOLDERS for file in sorted(Path(folder).rglob("*.py"))]
    return [".".join(file.with_suffix("").parts) for file in files if file.name != "__init__.py"]


def main() -> int:
    """Import all of them, from the front; or, given `back`, from the back."""
    other = None if "back" in sys.argv else subprocess.Popen([sys.executable, "-m", __spec__.name, "back"])
    for name in modules() if other else reversed(modules()):
        importlib.import_module(name)
    return other.wait() if other else 0


if __name__ == "__main__":
    sys.exit(main())
