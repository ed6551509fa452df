"""What notes which followed records are in hand, so that one at which the process died twice is left out."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from hashlib import blake2b
from typing import NamedTuple


class Held(NamedTuple):
    """Records of one file or partition (see `source_number`): the first offset, one past the last, and
    whether it is one record that is to be alone in hand."""

    source: int
    first: int
    stop: int
    alone: bool = False


class Guard:
    """What is known of records that the process died with, and the note of those in hand now; this one knows
    nothing and notes nothing."""

    def stretch(self, source: int, at: int) -> tuple[int, bool, bool]:
        """Up to where records from `at` on are taken alike, whether that is the next one alone, and whether
        it is left out."""
        return sys.maxsize, False, False

    def hold_range(self, held: Held, what: str) -> AbstractContextManager[None]:
        """Around whatever touches these records; `what` names them."""
        return nullcontext()


UNGUARDED = Guard()


def source_number(*names: object) -> int:
    """A number for a file or a partition, from what tells it from others; positive, of 63 bits."""
    return int.from_bytes(blake2b("/".join(map(str, names)).encode(), digest_size=8).digest()) >> 1
