"""A program that may follow a name pays for it when it does, not when it starts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

MOST = 30
ROOT = Path(__file__).parents[3]
LOADED = """
import json, sys
{statement}
wanted = ("daemon", "streams", "learners", "checkpoints", "numba", "scipy", "pydantic")
print(json.dumps([name for name in sys.modules if name.partition(".")[0] in wanted]))
"""


def loaded(statement: str) -> Any:
    """Modules of the product, and the heavy ones of others, after a statement in a new process."""
    code = LOADED.format(statement=statement)
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120, check=True
    )
    return json.loads(done.stdout)


def test_importing_follow_loads_next_to_nothing() -> None:
    names = loaded("from daemon.client import follow")
    assert len(names) <= MOST
    assert {name.partition(".")[0] for name in names} == {"daemon"}
    assert not [name for name in names if name.startswith("daemon.config")]


def test_every_public_name_is_there_and_no_role_comes_with_it() -> None:
    names = loaded(
        "import daemon.client\nfor name in daemon.client.__all__: assert getattr(daemon.client, name)"
    )
    roles = ("daemon.learn", "daemon.validate", "daemon.serve", "daemon.commands", "daemon.models")
    assert "daemon.client.model" in names
    assert not [name for name in names if name.startswith(roles)]


def test_another_name_is_an_attribute_error() -> None:
    assert loaded("import daemon.client as one\nassert not hasattr(one, 'nothing')")
