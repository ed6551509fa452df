"""What people see of objects, from a file of its own: title, text, image, tags."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from daemon.exits import EX_DATAERR, UserError
from streams.ids import IdColumn, Packed
from streams.items import Display, check_display, pack_display, unpack_display
from streams.limits import MAX_TEXT_BYTES
from streams.objects.json_vectors import read_fields
from streams.poison import WRONG_TYPE, Poison

FIELDS = ("title", "text", "image", "tags")


class DisplayFile:
    """Display data by id, packed; empty without a file. ids, packed: its rows, in the order of the file."""

    def __init__(self, found: Mapping[str, bytes] | None = None) -> None:
        """found: packed display data by id."""
        entries = found or {}
        self.ids = IdColumn(Packed.of_texts(entries))
        self.packed = Packed.of(list(entries.values()))

    def __len__(self) -> int:
        return len(self.ids)

    def of(self, object_id: str) -> Display | None:
        """What the file says of an object, or None."""
        row = int(self.ids.rows_of(Packed.of([object_id.encode("utf-8", "surrogatepass")]))[0])
        return None if row < 0 else unpack_display(self.packed[row])


def load_display(path: str | Path) -> DisplayFile:
    """Read JSON lines of `{"id", "title"?, "text"?, "image"?, "tags"?}`; UserError naming file and line."""
    found: dict[str, bytes] = {}
    try:
        with Path(path).open("rb") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    object_id, packed = _read_line(line, f"{path}, line {number}")
                    if object_id in found:
                        raise _refused(f"{path}, line {number}", "this id was there before")
                    found[object_id] = packed
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}", "correct serve.display") from None
    return DisplayFile(found)


def _read_line(line: bytes, place: str) -> tuple[str, bytes]:
    try:
        fields = read_fields(line, ("id", *FIELDS))
        if len(fields["id"].encode()) > MAX_TEXT_BYTES:
            raise ValueError(f"an id of more than {MAX_TEXT_BYTES} bytes")
        return fields["id"], pack_display(display_of(fields))
    except UnicodeEncodeError:
        raise _refused(place, "a text holds half a character (a lone surrogate)") from None
    except Poison as error:
        raise _refused(place, error.detail) from None
    except ValueError as error:
        raise _refused(place, str(error)) from None


def display_of(fields: Mapping[str, Any]) -> Display:
    """Display data from JSON fields; raises Poison naming the one that does not fit."""
    tags = fields.get("tags", [])
    if not isinstance(tags, list):
        raise Poison(WRONG_TYPE, "tags is not a list of texts")
    display = Display(fields.get("title"), fields.get("text"), fields.get("image"), tuple(tags))
    check_display(display)
    return display


def _refused(place: str, problem: str) -> UserError:
    return UserError(f"{place}: {problem}", "correct the line, or leave it out", EX_DATAERR)
