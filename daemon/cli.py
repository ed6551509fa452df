"""The command line: `tripletd COMMAND`."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Sequence
from functools import cache
from typing import Annotated, Any, Protocol, runtime_checkable

import typer

import tripletd
from daemon.commands import (
    backfill,
    check,
    clicks,
    demo,
    describe,
    feed,
    index,
    items,
    judge,
    look,
    models,
    ratings,
    replay,
    run,
    sweep,
    tokens,
    topics,
)
from daemon.exits import EX_OK, EX_SOFTWARE, EX_USAGE, INTERRUPTED, UserError, report, tell
from daemon.runtime.logs import notice_on_stderr


def check_ownership() -> None:
    """UserError when a package of another project stands where one of ours should; a note when one shares a
    folder with ours, since programs that import it get ours.
    """
    try:
        tripletd.check_names()
    except tripletd.ForeignPackage as foreign:
        raise UserError(foreign.message, foreign.remedy, EX_SOFTWARE) from None
    if tripletd.may_be_shared() and (shared := tripletd.shared_packages()):
        text, remedy = tripletd.told_shared(shared)
        tell(f"tripletd: note: {text}\n  {remedy}\n")


@runtime_checkable
class _CommandLineError(Protocol):
    """What is raised for a wrong command line: by click, or by the copy of it that a newer typer brings."""

    ctx: Any

    def format_message(self) -> str: ...


_EPILOG = (
    "Exit codes: 0 done, 64 usage, 65 data, 69 not available, 70 bug, "
    "73 cannot write, 75 try later, 78 configuration."
)

app = typer.Typer(
    name="tripletd",
    help="Learn similarity from clicks, one event at a time.",
    epilog=_EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _panel, _module, _names in (
    ("Start here", demo, "demo"),
    ("Start here", describe, "describe"),
    ("Start here", check, "check"),
    ("Run", feed, "feed"),
    ("Run", backfill, "backfill"),
    ("Run", sweep, "sweep"),
    ("Run", run, "up learn merge validate serve resume"),
    ("Look", look, "status curves deadletters"),
    ("Look", judge, "judge"),
    ("Look", replay, "replay"),
):
    for _name in _names.split():
        app.command(_name, rich_help_panel=_panel)(getattr(_module, _name))
for _name, _group, _panel in (
    ("items", items, "Run"),
    ("index", index, "Run"),
    ("topics", topics, "Start here"),
    ("tokens", tokens, "Run"),
    ("clicks", clicks, "Look"),
    ("models", models, "Look"),
    ("ratings", ratings, "Look"),
):
    app.add_typer(_group.app, name=_name, rich_help_panel=_panel)


def _print_version(wanted: bool) -> None:
    if wanted:
        from daemon.telemetry.metrics import version

        sys.stdout.write(f"tripletd {version()}\n")
        raise typer.Exit()


@app.callback()
def _global_options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", metavar="", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", metavar="", help="Show the stack trace of an error.")
    ] = False,
) -> None:
    """Learn similarity from clicks, one event at a time."""


@cache
def command_line() -> Callable[..., Any]:
    """Every command with its options, read out of signatures once in a process: that takes 80 ms."""
    return typer.main.get_command(app)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code. Errors are written to stderr, never as a stack trace."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    _standard_streams()
    notice_on_stderr()
    try:
        check_ownership()
        result: Any = command_line()(words, prog_name="tripletd", standalone_mode=False)
        sys.stdout.flush()
    except (typer.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except (BrokenPipeError, SystemExit):
        # The reader (`| head`) has seen enough, for which typer and rich end the program; or a stop came
        # while a role was starting. Keep the interpreter from flushing into the closed pipe again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EX_OK
    except Exception as error:  # noqa: BLE001  the one place where every error becomes a message
        return (
            _usage(error) if isinstance(error, _CommandLineError) else report(error, debug="--debug" in words)
        )
    return result if isinstance(result, int) else EX_OK


def _standard_streams() -> None:
    """Something to write to, whatever the caller closed, and no text that cannot be written.

    A closed descriptor is taken, too: the next file opened, perhaps the log, would get its number, and
    whatever writes to standard error would write into that file.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
            if name != "stdin":
                setattr(sys, name, open(number, "w", encoding="utf-8"))  # noqa: SIM115  for good
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def _usage(error: _CommandLineError) -> int:
    """What was wrong with the command line; without any command the help is out already."""
    message = error.format_message()
    if message:
        tell(f"tripletd: {message}\n")
        if error.ctx is not None:
            tell(f"  see {error.ctx.command_path} --help\n")
    return EX_USAGE
