"""Pictures of objects, read from one folder: whoever writes an item record must not choose what is read."""

from __future__ import annotations

import os
import stat
from pathlib import Path

MOST_BYTES = 8 << 20

_KINDS = (
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)


def kind_of(body: bytes) -> str | None:
    """The content type that the first bytes tell; None for what is no plain picture (an SVG runs code)."""
    for head, kind in _KINDS:
        if body.startswith(head):
            return kind
    return "image/webp" if body[:4] == b"RIFF" and body[8:12] == b"WEBP" else None


class ImageFolder:
    """Pictures below one folder, by paths relative to it (or absolute and inside it)."""

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()

    def read(self, path: str) -> bytes | None:
        """The picture's bytes.

        None for a path that leaves the folder (also by a link), that is no regular file, is larger than
        `MOST_BYTES`, or holds no picture; and for one that is not there.
        """
        try:
            place = (self._root / path).resolve()
            if not place.is_relative_to(self._root):
                return None
            # Without waiting for the other end of a pipe, should somebody have put one there.
            with open(place, "rb", opener=_opener) as file:
                about = os.fstat(file.fileno())
                if not stat.S_ISREG(about.st_mode) or about.st_size > MOST_BYTES:
                    return None
                body = file.read(MOST_BYTES)
        except (OSError, ValueError, RuntimeError):
            return None
        return body if kind_of(body) else None


def _opener(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOFOLLOW)
