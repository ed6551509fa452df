"""All kernels are compiled ahead by two processes, each kernel once; a second run finds nothing to do."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from daemon.runtime import logs
from daemon.up import kernels
from learners import CompileNotice

TINY = """
from {island}.compile import kernel
@kernel("int64(int64)")
def {name}(x):
    return {factor} * x
"""

TWO_ISLANDS = """
import sys
from daemon.up import kernels
from pathlib import Path
kernels.modules = lambda: ["tiny_kernels", "tiny_decoders"]
kernels.PROGRAM = (sys.executable, {program!r})
sys.exit(kernels.main())
"""


@pytest.fixture
def program(tmp_path: Path) -> list[str]:
    """A program of two tiny kernels, with a cache of its own."""
    for name, island in (("kernels", "learners.kernels"), ("decoders", "streams.compiled")):
        source = "".join(TINY.format(island=island, name=f"{name}_{n}", factor=n) for n in range(4))
        (tmp_path / f"tiny_{name}.py").write_text(source)
    path = tmp_path / "program.py"
    path.write_text(TWO_ISLANDS.format(program=str(path)))
    return [sys.executable, str(path)]


def run(program: list[str], cache: Path) -> str:
    paths = os.pathsep.join([str(cache.parent), str(kernels.ROOT)])
    environment = {**os.environ, "PYTHONPATH": paths, "NUMBA_CACHE_DIR": str(cache)}
    return subprocess.run(program, env=environment, capture_output=True, text=True, check=True).stderr


def test_all_is_compiled_once_and_the_next_run_has_nothing_to_do(program: list[str], tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    said = run(program, cache).splitlines()
    assert [line.split(" in ")[0] for line in said] == [
        "compiling all kernels for this machine, once: a minute or two",
        "the kernels were compiled",
    ]
    made = {path.name.split("-")[0] for path in cache.rglob("*.nbi")}
    assert made == {f"tiny_{name}.{name}_{n}" for name in ("kernels", "decoders") for n in range(4)}
    code = {path: path.stat().st_mtime_ns for path in cache.rglob("*.nbc")}
    assert len(code) == 8, "each by one process"
    assert run(program, cache) == ""
    assert {path: path.stat().st_mtime_ns for path in cache.rglob("*.nbc")} == code
    next(cache.rglob("*.nbi")).unlink()
    assert "compiling" in run(program, cache)


def test_every_module_of_compiled_code_is_compiled() -> None:
    assert {"learners.kernels.oasis", "learners.kernels.scan", "streams.compiled.reading"} <= set(
        kernels.modules()
    )


def test_a_notice_of_the_learners_is_one_line_for_a_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    logs.notice_on_stderr()
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning(CompileNotice("compiling the kernels"), CompileNotice, __file__, 1)
    assert capsys.readouterr().err == "tripletd: note: compiling the kernels\n"
