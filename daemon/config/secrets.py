"""Files with secrets: reading one that the environment names, and telling which everybody can read."""

from __future__ import annotations

import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from daemon.exits import UserError

FILE_SUFFIX = "_file"
"""A secret's variable with this ending holds the path of a file with the secret."""


@dataclass(frozen=True, slots=True)
class ExposedFile:
    """A file with the secrets `keys` ("section.key") whose mode lets every user of the host read it."""

    path: Path
    keys: tuple[str, ...]
    mode: int

    @property
    def text(self) -> str:
        """What is wrong, in words."""
        held = " and ".join(self.keys)
        return f"{self.path} holds {held}, and every user of this host can read it (mode {self.mode:04o})"

    @property
    def remedy(self) -> str:
        """What to do: the owner and the group keep what they may."""
        return f"chmod o-rwx {self.path}"


def exposed_files(holding: Mapping[Path, Sequence[str]]) -> tuple[ExposedFile, ...]:
    """Those of the files that every user of the host can read; `holding`: the secrets in each."""
    found = []
    for path, keys in holding.items():
        try:
            mode = stat.S_IMODE(path.stat().st_mode)
        except OSError:  # gone, or not to be looked at: whoever opens it says so
            continue
        if keys and mode & stat.S_IROTH:
            found.append(ExposedFile(path, tuple(keys), mode))
    return tuple(found)


def read_secret(name: str, path: str) -> str:
    """The secret in a file named by an environment variable, without the line's end. UserError."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or "not a readable text file"
        # the path is not shown: it may be the secret itself, put where its file's path belongs
        message = f"environment {name}: the file it names cannot be read: {why}"
        raise UserError(message, "give the path of the secret's file") from None
    secret = text.removesuffix("\n").removesuffix("\r")
    if not secret:
        raise UserError(f"environment {name}: the file is empty", "write the secret into it, on one line")
    return secret


def refuse_both(name: str, environ: Mapping[str, str]) -> None:
    """UserError where the environment gives a secret and, in the variable `name`, its file as well."""
    plain = name[: -len(FILE_SUFFIX)]
    if plain in environ:
        raise UserError(f"environment {plain} and {name} are both set", "unset one of the two")
