"""Log lines on stderr: readable on a terminal, one JSON object per line elsewhere; stdout is for data."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import warnings
from collections.abc import MutableMapping
from functools import partial
from typing import TYPE_CHECKING, Any, TextIO, cast

from daemon.exits import tell

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger


_NOTICES = frozenset({"CompileNotice", "PrecisionNotice"})
"""By name: `learners` may not be loaded here."""
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


class _Stderr:
    """Standard error that may go away: when its reader has ended, the role must still finish its work."""

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError, ValueError):
            return sys.stderr.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.flush()


_shown_by_python = warnings.showwarning


def notice_on_stderr() -> None:
    """What `learners` notices is a line on stderr from now on, for commands that write no log."""
    warnings.showwarning = _note_warning


def configure(level: str = "info", format: str = "auto", role: str = "") -> None:
    """Set up logging for this process.

    Args:
        level: debug, info, warning or error.
        format: console, json, or auto (console on a terminal, json otherwise).
        role: named in every JSON line; several roles share one journal.
    """
    import structlog

    console = format == "console" or (format == "auto" and sys.stderr.isatty())
    processors: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="%H:%M:%S", utc=False)
        if console
        else structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if role and not console:
        processors.append(partial(_of_role, role))
    if console:
        plain = structlog.dev.plain_traceback
        processors.append(structlog.dev.ConsoleRenderer(colors=wants_colour(), exception_formatter=plain))
    else:
        processors += [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(default=str)]
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=structlog.WriteLoggerFactory(cast(TextIO, _Stderr())),
        cache_logger_on_first_use=False,
    )
    structlog.contextvars.clear_contextvars()
    warnings.showwarning = _show_warning


def _note_warning(message: Warning | str, category: type[Warning], *place: Any, **rest: Any) -> None:
    if category.__name__ in _NOTICES:
        tell(f"tripletd: note: {message}\n")
    else:
        _shown_by_python(message, category, *place, **rest)


def _show_warning(message: Warning | str, category: type[Warning], *place: Any, **rest: Any) -> None:
    """What `learners` notices is a line of the log; any other warning is shown as Python does."""
    if category.__name__ in _NOTICES:
        import structlog

        log = structlog.get_logger()
        if category.__name__ == "CompileNotice":
            log.info("compiling", detail=str(message))
        else:
            log.warning("vectors_too_short", detail=str(message))
    else:
        _shown_by_python(message, category, *place, **rest)


def _of_role(role: str, logger: Any, method: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Name the role in every line, also those of threads, which context variables do not reach."""
    line.setdefault("role", role)
    return line


def set_level(level: str) -> None:
    """Another least severity from now on; `level` as in `configure`."""
    import structlog

    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]))


def get_logger(**context: Any) -> FilteringBoundLogger:
    """A logger that adds `context` to every line: `log.info("what happened", key=value)`."""
    import structlog

    logger: FilteringBoundLogger = structlog.get_logger(**context)
    return logger


def wants_colour() -> bool:
    """Colour on a terminal, or where FORCE_COLOR asks for it; never where NO_COLOR is set."""
    if os.environ.get("NO_COLOR"):
        return False
    return sys.stderr.isatty() or bool(os.environ.get("FORCE_COLOR"))
