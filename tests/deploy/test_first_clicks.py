"""The example that a newcomer begins with: its files are ones that the commands take."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.deploy.programs import DEPLOY
from tests.harness import forked

EXAMPLE = DEPLOY / "examples" / "first_clicks.py"


def write(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-I", str(EXAMPLE), str(folder)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def tripletd(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "daemon", *words]
    return forked.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=folder)


def test_its_files_are_taken_as_they_are(tmp_path: Path) -> None:
    shop = tmp_path / "shop"
    assert write(shop).returncode == 0
    assert tripletd(shop, "check").returncode == 0
    fed = tripletd(shop, "feed", "clicks.jsonl", "--dry-run", "--json")
    assert fed.returncode == 0, fed.stderr
    account = json.loads(fed.stdout)
    assert account["read"] == 4000
    assert set(account["dropped"]) <= {"no_click"}, "only lists that nobody clicked in may be dropped"
    assert account["random_negatives"] > 0, "the catalog is found"


def test_a_folder_that_is_there_is_left_alone(tmp_path: Path) -> None:
    done = write(tmp_path)
    assert done.returncode == 1
    assert "name a folder" in done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    assert not list(tmp_path.iterdir())
