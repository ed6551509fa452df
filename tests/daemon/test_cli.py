"""The command line as a shell sees it: exit codes, stdout, stderr, and never a stack trace."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from rich.text import Text
from typer.testing import CliRunner

from daemon.cli import app
from daemon.exits import (
    EX_CANTCREAT,
    EX_CONFIG,
    EX_DATAERR,
    EX_OK,
    EX_SOFTWARE,
    EX_TEMPFAIL,
    EX_UNAVAILABLE,
    EX_USAGE,
    UserError,
    as_user_error,
    report,
)
from tests.harness import forked

ROOT = Path(__file__).parents[2]
UNFITTED = ("--set", "space.views.x.map=identity")
FREE = tuple(x for role in ("learn", "validate", "serve") for x in ("--set", f"http.{role}_port=0"))


def tripletd(
    *arguments: str, cwd: Path, env: dict[str, str] | None = None, real: bool = False
) -> subprocess.CompletedProcess[str]:
    """The command's end; started as a user starts it, imports and all, where it is `real`."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("TRIPLETD_")}
    environment |= {"PYTHONPATH": str(ROOT), "COLUMNS": "100", "TMPDIR": str(cwd), **(env or {})}
    run = subprocess.run if real else forked.run
    return run(
        [sys.executable, "-m", "daemon", *arguments],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("bogus",), EX_USAGE, "No such command 'bogus'"),
        (("check", "--bogus"), EX_USAGE, "see tripletd check --help"),
        (("models", "show"), EX_USAGE, "Missing argument"),
        (("check", "--set", "learner"), EX_USAGE, "section.key=value"),
        (("check", "--config", "none.toml"), EX_CONFIG, "none.toml: no such file"),
        (("learn", "--set", "learner.C=0"), EX_CONFIG, "learner.C: found 0"),
        (("learn", *FREE), EX_CONFIG, "no tripletd.toml in /"),
        (("up",), EX_CONFIG, "no tripletd.toml in /"),
        (("serve",), EX_CONFIG, "no tripletd.toml in /"),
        (("models", "list"), EX_UNAVAILABLE, "no tripletd.toml in /"),
        (("train",), EX_USAGE, "Did you mean 'learn'?"),
        (("promote", "3"), EX_USAGE, "Did you mean 'models promote'?"),
        (("up", "--set", "log.level=loud"), EX_CONFIG, "log.level"),
        (("models", "list"), EX_UNAVAILABLE, "no such folder"),
        (("curves",), EX_UNAVAILABLE, "no such folder"),
        (("learn", "--set", "space.views.x.dim=100000000", *UNFITTED, *FREE), EX_CONFIG, "memory are free"),
        (("feed", "a", "--to", "memory:a"), EX_USAGE, "is gone when feed ends"),
    ],
)
def test_a_mistake_has_its_code_and_a_message_without_a_stack_trace(
    tmp_path: Path, arguments: tuple[str, ...], code: int, told: str
) -> None:
    ended = tripletd(*arguments, cwd=tmp_path, env={"TRIPLETD_LOG__LEVEL": "error"})
    assert ended.returncode == code
    assert told in ended.stderr
    assert "Traceback" not in ended.stderr, ended.stderr
    assert ended.stdout == ""


def test_help_lists_every_command_and_needs_no_heavy_import(tmp_path: Path) -> None:
    ended = tripletd("--help", cwd=tmp_path, real=True)
    assert ended.returncode == EX_OK
    for command in ("demo", "up", "feed", "learn", "validate", "check", "status", "models", "curves"):
        assert f" {command} " in ended.stdout
    heavy = ("numpy", "numba", "river", "sklearn", "structlog", "pydantic")
    code = f"import sys, daemon.cli; print([name for name in {heavy} if name in sys.modules])"
    loaded = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert loaded.stdout == "[]\n"


def every_command() -> list[tuple[str, object]]:
    """(words, click command) of every command and group."""
    found = []
    todo = [("tripletd", typer.main.get_command(app))]
    while todo:
        words, command = todo.pop()
        found.append((words, command))
        todo += [(f"{words} {name}", one) for name, one in getattr(command, "commands", {}).items()]
    return found


def test_no_bracket_of_a_help_text_is_taken_for_markup() -> None:
    for words, command in every_command():
        for text in (command.help, *(getattr(one, "help", None) for one in command.params)):
            brackets = (text or "").replace("\\[", "[").count("[")
            assert Text.from_markup(text or "").plain.count("[") == brackets, (words, text)
    assert "float32 [rank, dim]" in " ".join(help_of("models", "export").replace("│", " ").split())


def help_of(*words: str) -> str:
    return CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "120"}, prog_name="tripletd").stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_commands_and_options(tmp_path: Path, shell: str) -> None:
    named = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1", "HOME": str(tmp_path)}
    script = tripletd("--show-completion", shell, cwd=tmp_path, env=named)
    assert (script.returncode, f"_TRIPLETD_COMPLETE=complete_{shell}" in script.stdout) == (EX_OK, True)
    asked = {"_TRIPLETD_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    for words, expected in (("tripletd mod", "models"), ("tripletd models promote --ali", "--alias")):
        typed = {"COMP_WORDS": words, "COMP_CWORD": str(words.count(" ")), "_TYPER_COMPLETE_ARGS": words}
        ended = tripletd(cwd=tmp_path, env=asked | typed)
        assert (ended.returncode, expected in ended.stdout) == (EX_OK, True), ended.stderr
    installed = tripletd("--install-completion", shell, cwd=tmp_path, env=named)
    assert (installed.returncode, "completion installed" in installed.stdout) == (EX_OK, True)


def test_lines_in_a_pipe_end_without_spaces(tmp_path: Path) -> None:
    ended = tripletd("check", *UNFITTED, "--set", "space.views.x.dim=3", cwd=tmp_path, env={"COLUMNS": "220"})
    assert max(map(len, ended.stdout.splitlines())) > 60
    assert [line for line in ended.stdout.splitlines() if line != line.rstrip()] == []


def test_version(tmp_path: Path) -> None:
    ended = tripletd("--version", cwd=tmp_path, real=True)
    assert (ended.returncode, ended.stdout.split()[0]) == (EX_OK, "tripletd")


def test_check_prints_what_was_set_with_its_origin_and_passes(tmp_path: Path) -> None:
    (tmp_path / "tripletd.toml").write_text(
        "[space.views.x]\ndim = 3\n[http]\nlearn_port = 0\nvalidate_port = 0\nserve_port = 0\n"
    )
    asked, env = ("check", "--set", "learner.C=0.5"), {"TRIPLETD_FEED__SEED": "4"}
    ended, whole = (tripletd(*asked, *more, cwd=tmp_path, env=env) for more in ((), ("--all",)))
    assert (ended.returncode, whole.returncode) == (EX_OK, EX_OK), ended.stderr
    told, every = (
        {line.split()[0]: line.split()[1:] for line in one.stdout.splitlines() if line.startswith("  ")}
        for one in (ended, whole)
    )
    assert told["C"] == every["C"] == ["0.5", "cli"]
    assert told["dim"] == every["dim"] == ["3", "file"]
    assert "psd_every" not in told
    assert every["psd_every"] == ["0", "default"]
    assert "settings have their defaults: --all prints them" in ended.stdout
    assert "settings have their defaults" not in whole.stdout
    assert "all is well" in ended.stdout


def test_check_as_json(tmp_path: Path) -> None:
    (tmp_path / "tripletd.toml").write_text("[space.views.x]\ndim = 3\n")
    good = json.loads(tripletd("check", "--json", cwd=tmp_path).stdout)
    assert good["ok"] is True
    assert good["config"]["space"]["views"]["x"]["dim"] == 3
    assert good["origins"]["space.views.x.dim"] == "file"
    ended = tripletd("check", "--json", "--set", "feed.rule=x", cwd=tmp_path)
    bad = json.loads(ended.stdout)
    assert (ended.returncode, bad["ok"], len(bad["errors"])) == (EX_CONFIG, False, 1)


def test_check_finds_what_a_role_would_stumble_over(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "labels.tsv").write_text("a\tone\n")
    settings = ["space.views.x.dim=3", "checkpoints.path=file", "validate.judgments=labels:labels.tsv"]
    settings += ["stream.address=kafka://127.0.0.1:1/t", "http.host=no.such.host.invalid"]
    arguments = [word for setting in settings for word in ("--set", setting)]
    ended = tripletd("check", "--json", *arguments, cwd=tmp_path)
    errors = "\n".join(json.loads(ended.stdout)["errors"])
    assert ended.returncode == EX_CONFIG
    for told in (
        "is not a folder",
        "there is no catalog",
        "nobody listens at 127.0.0.1:1",
        "no.such.host.invalid:9101",
    ):
        assert told in errors


def test_up_ends_with_the_code_of_a_role_that_cannot_run(tmp_path: Path) -> None:
    ended = tripletd("up", *FREE, cwd=tmp_path)
    assert ended.returncode == EX_CONFIG
    assert ended.stderr.startswith(f"tripletd: no tripletd.toml in {tmp_path}\n")
    (tmp_path / "tripletd.toml").write_text("[space.views.x]\ndim = 3\n[catalog]\npath = 'gone.jsonl'\n")
    ended = tripletd("up", *FREE, cwd=tmp_path)
    assert (ended.returncode, "gone.jsonl" in ended.stderr) == (EX_DATAERR, True)
    assert "giving up" in ended.stderr
    assert "Traceback" not in ended.stderr, ended.stderr


def test_a_closed_pipe_is_no_error(tmp_path: Path) -> None:
    command = f"{sys.executable} -m daemon check --json | true; exit ${{PIPESTATUS[0]}}"
    ended = subprocess.run(
        ["bash", "-c", command],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in ended.stderr, ended.stderr
    assert ended.returncode in (EX_OK, EX_CONFIG)


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("check --set space.views.x.dim=3 >&-", EX_OK),
        ("check --set space.views.x.dim=3 >/dev/full", EX_TEMPFAIL),
        ("check --config none.toml 2>&-", EX_CONFIG),
        ("check --config none.toml 2>/dev/full", EX_CONFIG),
        ("bogus 2>/dev/full", EX_USAGE),
        ("feed - <&- 2>&-", EX_DATAERR),
        (
            "learn --exit-when-caught-up --set space.views.x.dim=3 "
            + " ".join(UNFITTED + FREE)
            + " <&- >&- 2>&-",
            0,
        ),
    ],
)
def test_closed_and_full_streams_change_no_exit_code(tmp_path: Path, command: str, code: int) -> None:
    ended = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m daemon {command}"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert ended.returncode == code


def test_a_terminal_that_knows_ascii_alone_gets_question_marks(tmp_path: Path) -> None:
    env = {"PYTHONIOENCODING": "ascii"}
    ended = tripletd("check", "--set", "space.views.\u00fc.dim=3", cwd=tmp_path, env=env)
    assert (ended.returncode, "Traceback" in ended.stderr) == (EX_OK, False)
    assert "?" in ended.stdout


def raised() -> KeyError:
    """An error with a trace."""
    with pytest.raises(KeyError) as caught:
        raise KeyError("surprise")
    return caught.value


def test_a_bug_is_one_line_and_a_private_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert report(raised(), debug=False) == EX_SOFTWARE
    told = capsys.readouterr().err
    assert told.startswith("tripletd: this is a bug: KeyError: 'surprise'")
    assert told.count("\n") == 1
    (crash,) = tmp_path.glob("tripletd-crash-*.txt")
    assert str(crash) in told
    assert "Traceback" in crash.read_text()
    assert crash.stat().st_mode & 0o077 == 0


def test_debug_shows_the_trace_instead(capsys: pytest.CaptureFixture[str]) -> None:
    report(raised(), debug=True)
    assert "Traceback" in capsys.readouterr().err


def test_errors_of_the_islands_have_their_codes() -> None:
    from checkpoints.store import Damaged, Superseded, WriteFailed
    from learners.errors import StateError
    from streams.errors import (
        AddressError,
        LogFileError,
        LogNotWritable,
        OffsetExpired,
        PartitionMissing,
        StreamRefused,
        StreamUnavailable,
        TopicMissing,
    )

    codes = {
        AddressError("a"): EX_CONFIG,
        TopicMissing("a"): EX_UNAVAILABLE,
        StreamRefused("a"): EX_CONFIG,
        StreamUnavailable("a"): EX_UNAVAILABLE,
        PartitionMissing("a", 2, 1): EX_CONFIG,
        OffsetExpired(0, 1, 5): EX_DATAERR,
        LogFileError("a"): EX_DATAERR,
        LogNotWritable("a"): EX_CANTCREAT,
        StateError("a"): EX_CONFIG,
        MemoryError("a"): EX_CONFIG,
        Damaged("missing", "a", "b"): EX_DATAERR,
        Superseded("a", "b"): EX_CANTCREAT,
        WriteFailed("a", "b"): EX_TEMPFAIL,
        OSError(errno.ENOSPC, "No space left on device", "/data/x"): EX_TEMPFAIL,
        OSError(errno.EDQUOT, "Disk quota exceeded"): EX_TEMPFAIL,
        OSError(errno.EACCES, "Permission denied", "/data/x"): EX_CANTCREAT,
        UserError("a", "", 75): EX_TEMPFAIL,
    }
    for error, code in codes.items():
        readable = as_user_error(error)
        assert readable is not None
        assert readable.code == code
    assert as_user_error(RuntimeError("x")) is None


def test_an_error_of_checkpoints_tells_its_remedy_apart() -> None:
    from checkpoints.store import Damaged

    readable = as_user_error(Damaged("missing", "v3", "has no manifest", "delete it"))
    assert readable is not None
    assert (readable.message, readable.remedy) == ("v3: has no manifest", "delete it")


def test_an_error_of_the_file_system_is_no_bug() -> None:
    readable = as_user_error(OSError(errno.ENAMETOOLONG, "File name too long", "/data/xxx"))
    assert readable is not None
    assert (readable.code, readable.message) == (EX_CANTCREAT, "/data/xxx: File name too long")
    assert as_user_error(OSError(errno.EBADF, "Bad file descriptor")) is None


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_stop_while_a_role_starts_is_not_lost_inside_native_code(number: int, code: int) -> None:
    # An exception raised in a callback from native code is printed and dropped: the role would go on.
    script = (
        "import ctypes, os, sys\n"
        "from daemon.commands.common import start_role\n"
        "start_role('learn', None, ['space.views.x.dim=3'])\n"
        f"stop = ctypes.CFUNCTYPE(None)(lambda: [os.kill(os.getpid(), {number}), sum(range(10**6))])\n"
        "stop()\n"
        "sys.exit(99)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stderr) == (code, "")


def test_a_role_says_at_its_start_that_everybody_can_read_its_secrets(tmp_path: Path) -> None:
    file = tmp_path / "tripletd.toml"
    file.write_text('[space.views.x]\ndim = 3\n[http]\ntoken = "correct-horse-battery"\n')
    file.chmod(0o644)
    script = (
        "from pathlib import Path\nfrom daemon.commands.common import start_role\n"
        f"start_role('serve', Path({str(file)!r}), None)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    (line,) = ended.stderr.splitlines()
    told = json.loads(line)
    assert (told["level"], told["role"], told["remedy"]) == ("warning", "serve", f"chmod o-rwx {file}")
    assert f"{file} holds http.token" in told["event"]
    assert "mode 0644" in told["event"]
    assert "correct-horse" not in line
