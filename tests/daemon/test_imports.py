"""What a command brings in before it does anything: commands that look must answer at once."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path

import pytest

from daemon.commands.common import loading
from daemon.config.learners import MAX_AVERAGED_C
from learners.averaged import MAX_C

PROGRAM = """
import sys
from daemon.cli import main
for command in ("status", "models list", "topics describe"):
    main([*command.split(), *sys.argv[1:]])
    assert "numba" not in sys.modules, command
"""


def test_a_command_that_looks_loads_no_kernels(tmp_path: Path) -> None:
    ports = "".join(f"{role}_port = 0\n" for role in ("learn", "validate", "serve"))
    text = f"[space.views.x]\ndim = 4\n[caps]\nitem = 2\n[http]\n{ports}"
    (tmp_path / "tripletd.toml").write_text(text)
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "--config", str(tmp_path / "tripletd.toml")],
        cwd=root,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_no_role_begins_with_the_libraries_that_it_may_need_later() -> None:
    """To load these takes more than a second of a core."""
    heavy = ("river", "sklearn", "scipy.stats", "matplotlib", "pandas", "kafka", "confluent_kafka", "pyarrow")
    roles = "daemon.learn.start, daemon.validate.role, daemon.serve.start"
    code = f"import sys, {roles}; print([name for name in {heavy} if name in sys.modules])"
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_garbage_collector_rests_while_a_role_is_loaded_and_not_after() -> None:
    with loading():
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ImportError), loading():
        raise ImportError
    assert gc.isenabled()


def test_a_garbage_collector_that_was_switched_off_stays_so() -> None:
    gc.disable()
    try:
        with loading():
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_a_bound_that_is_repeated_for_that_is_the_learners() -> None:
    assert MAX_AVERAGED_C == MAX_C
