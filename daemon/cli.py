"""The command line: `tripletd COMMAND`."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, Protocol, runtime_checkable

import typer
import typer.core

from daemon.commands import (
    backfill,
    check,
    clicks,
    demo,
    describe,
    feed,
    index,
    init,
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
from tripletd import _names as names


def check_ownership() -> None:
    """UserError when a package of another project stands where one of ours should; a note when one shares a
    folder with ours, since programs that import it get ours.
    """
    try:
        names.check_names()
    except names.ForeignPackage as foreign:
        raise UserError(foreign.message, foreign.remedy, EX_SOFTWARE) from None
    if names.may_be_shared() and (shared := names.shared_packages()):
        text, remedy = names.told_shared(shared)
        tell(f"tripletd: note: {text}\n  {remedy}\n")


@runtime_checkable
class _CommandLineError(Protocol):
    """What is raised for a wrong command line: by click, or by the copy of it that a newer typer brings."""

    ctx: Any
    message: str

    def format_message(self) -> str: ...


_EPILOG = (
    "Exit codes: 0 done, 64 usage, 65 data, 69 not available, 70 bug, "
    "73 cannot write, 75 try later, 78 configuration."
)

_SETTINGS: dict[str, Any] = {"help_option_names": ["-h", "--help"]}
START, RUN, LOOK, LARGE = "Start here", "Run", "Look", "Research and large scale"

MEANT: Mapping[str, str] = {
    **dict.fromkeys(("new", "setup", "configure", "quickstart", "create"), "init"),
    **dict.fromkeys(("ingest", "import", "load", "add", "push"), "feed"),
    **dict.fromkeys(("run", "start", "daemon", "all", "restart"), "up"),
    **dict.fromkeys(("train", "fit", "update", "learner"), "learn"),
    **dict.fromkeys(("eval", "evaluate", "compare", "score", "test"), "judge"),
    **dict.fromkeys(("predict", "query", "search", "ask", "server", "api", "ui", "web"), "serve"),
    **dict.fromkeys(("info", "stats", "ps", "state", "health", "show"), "status"),
    **dict.fromkeys(("config", "doctor", "lint", "verify", "diagnose"), "check"),
    **dict.fromkeys(("plot", "graph", "metrics"), "curves"),
    **dict.fromkeys(("embed", "encode", "vectorize", "vectorise"), "describe"),
    **dict.fromkeys(("tune", "search-params", "hpo", "optimize"), "sweep"),
    **dict.fromkeys(("errors", "dlq", "dead-letters", "failures"), "deadletters"),
    **dict.fromkeys(("continue", "unpause", "unpark"), "resume"),
    **dict.fromkeys(("versions", "list", "ls"), "models list"),
    **dict.fromkeys(("example", "tutorial", "try"), "demo"),
}
"""What other programs call commands, by what they are called here."""


class CommandGroup(typer.core.TyperGroup):
    """The commands; a word that is none of them leads to the one that was meant."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """As typer does; a usage error names the command by another program's name for it, or its group."""
        try:
            return super().resolve_command(ctx, args)
        except Exception as error:
            groups = {name: getattr(one, "commands", ()) for name, one in self.commands.items()}
            within = (f"{name} {args[0]}" for name, commands in groups.items() if args[0] in commands)
            meant = MEANT.get(args[0].lower()) or next(within, None)
            if meant is not None and isinstance(error, _CommandLineError):
                error.message = f"No such command {args[0]!r}. Did you mean {meant!r}?"
            raise


app = typer.Typer(
    name="tripletd",
    cls=CommandGroup,
    help="Learn similarity from clicks, one event at a time.",
    epilog=_EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings=_SETTINGS,
)
_COMMANDS: tuple[tuple[str, str, Any], ...] = (
    (START, "init", init),
    (START, "feed", feed),
    (START, "up", run),
    (START, "status", look),
    (START, "check", check),
    (START, "demo", demo),
    (START, "describe", describe),
    (RUN, "learn", run),
    (RUN, "validate", run),
    (RUN, "serve", run),
    (RUN, "resume", run),
    (RUN, "items", items),
    (RUN, "topics", topics),
    (RUN, "tokens", tokens),
    (RUN, "index", index),
    (LOOK, "curves", look),
    (LOOK, "deadletters", look),
    (LOOK, "models", models),
    (LOOK, "clicks", clicks),
    (LARGE, "backfill", backfill),
    (LARGE, "sweep", sweep),
    (LARGE, "merge", run),
    (LARGE, "judge", judge),
    (LARGE, "replay", replay),
    (LARGE, "ratings", ratings),
)
"""Each command or group of commands with its heading, in the order of the help."""

for _panel, _name, _module in _COMMANDS:
    if hasattr(_module, _name):
        app.command(_name, rich_help_panel=_panel)(getattr(_module, _name))
    else:
        app.add_typer(_module.app, name=_name, rich_help_panel=_panel)
for _command in models.app.registered_commands:
    if _command.name in ("kernels", "average", "migrate", "write-off"):
        _command.rich_help_panel = LARGE


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
    made = typer.main.get_command(app)
    todo: list[Any] = [made]
    for one in todo:  # typer shows a type, <bool>, beside options that take no value: here they have none
        for option in (*one.params, one.get_help_option(typer.Context(one, **_SETTINGS))):
            if option.name in ("help", "install_completion", "show_completion"):
                option.metavar = ""
        todo += getattr(one, "commands", {}).values()
    return made


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
