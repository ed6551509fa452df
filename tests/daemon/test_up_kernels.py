"""Kernels are compiled before the roles start, once; a note says when there is nothing to do."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path

import pytest

from daemon.runtime import logs
from daemon.up import kernels
from learners import CompileNotice


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Sources of two packages, without a cache."""
    for package in kernels.PACKAGES:
        folder = tmp_path.joinpath(*package.split("."))
        folder.mkdir(parents=True)
        (folder / "__init__.py").touch()
        (folder / "step.py").write_text("one = 1\n")
    monkeypatch.setattr(kernels, "ROOT", tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    return tmp_path


def program(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    monkeypatch.setattr(kernels, "PROGRAM", (sys.executable, "-c", code))


def test_a_note_holds_for_the_sources_it_was_written_for(tree: Path) -> None:
    assert not kernels.noted()
    folder = tree / "learners" / "kernels" / "__pycache__" / "kernels-1"
    folder.mkdir(parents=True)
    (folder / kernels.note_name()).touch()
    assert kernels.noted()
    (tree / "streams" / "compiled" / "step.py").write_text("one = 11\n")
    assert not kernels.noted()


def test_a_note_is_found_in_the_folder_that_the_environment_names(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tree / "elsewhere" / "kernels-1"
    folder.mkdir(parents=True)
    (folder / kernels.note_name()).touch()
    assert not kernels.noted()
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(folder.parent))
    assert kernels.noted()


def test_every_module_of_compiled_code_is_compiled() -> None:
    assert {"learners.kernels.oasis", "learners.kernels.scan", "streams.compiled.reading"} <= set(
        kernels.modules()
    )


def test_two_processes_compile_from_both_ends_and_say_so(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(monkeypatch, f"import sys, pathlib; pathlib.Path({str(tree)!r}, 'from-' + sys.argv[1]).touch()")
    monkeypatch.setattr(kernels, "QUIET_SECONDS", -1.0)
    said: list[str] = []
    kernels.compile_ahead(said.append)
    assert [one.split(" in ")[0] for one in said] == [
        "compiling the kernels for this machine, once: a minute or two",
        "the kernels were compiled",
    ]
    assert {one.name for one in tree.glob("from-*")} == {"from-front", "from-back"}


def test_nothing_is_started_or_said_where_a_note_is(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(monkeypatch, f"import pathlib; pathlib.Path({str(tree)!r}, 'started').touch()")
    monkeypatch.setattr(kernels, "noted", lambda: True)
    said: list[str] = []
    kernels.compile_ahead(said.append)
    assert not said
    assert not (tree / "started").exists()


def test_what_fails_is_left_to_the_roles(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(monkeypatch, "raise SystemExit(1)")
    kernels.compile_ahead(lambda said: None)
    assert not kernels.noted()


def test_a_stop_ends_the_compilers(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(
        monkeypatch,
        "import os, pathlib, sys, time\n"
        f"pathlib.Path({str(tree)!r}, sys.argv[1] + '.pid').write_text(str(os.getpid()))\n"
        "time.sleep(600)",
    )

    def until_both_run(seconds: float) -> bool:
        kernels.sleep(seconds)
        return sum(one.read_text() != "" for one in tree.glob("*.pid")) == 2

    kernels.compile_ahead(lambda said: None, until_both_run)
    for one in tree.glob("*.pid"):
        with pytest.raises(ProcessLookupError):
            os.kill(int(one.read_text()), 0)


def test_a_notice_of_the_learners_is_one_line_for_a_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    logs.notice_on_stderr()
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning(CompileNotice("compiling the kernels"), CompileNotice, __file__, 1)
    assert capsys.readouterr().err == "tripletd: note: compiling the kernels\n"
