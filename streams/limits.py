"""The limits of the wire format (see FORMAT.md), of logs and of what is read at once: every number once.

Importing this imports nothing. The decoder's machine code is made with these numbers, so the name of its
cache depends on this file too. `learners` has limits of its own for keys and magnitudes, because it knows no
stream; a test holds them equal.
"""

from __future__ import annotations

FORMAT_VERSION, KEYED_VERSION, DRAFTED_VERSION, KIND_VERSION, TRAINED_VERSION = 1, 2, 3, 4, 5
PAIRED_VERSION, ARMS_VERSION = 6, 7
"""Events and impressions with a key are of the second, impressions with a draft of the third, those of a kind
that is held out of the fourth, those that are learned from of the fifth, events that say which pair they are
of the sixth, held-out lists that arms learn of the seventh: a reader that knows only the versions before
refuses these alone."""

MAX_VALUE_BYTES = 1024 * 1024
"""One event, impression or item record."""

MAX_TEXT_BYTES = 512
"""One text in UTF-8: an id, a source, the name of a space or view."""

MAX_KEY_BYTES = 64
"""One key of a model in UTF-8."""

MAX_MAP_ENTRIES = 32
"""Entries of a map, hence views of one object."""

MAX_SHOWN = 1000
"""Objects in the list of one impression."""

PAIR_KINDS, MAX_PAIR = 31, 255
"""Kinds of pairs that this release knows, numbered from 1 by the bits of `streams.event`, and that there may
be."""

MAX_TS = 2**53 - 1
"""Milliseconds since 1970."""

MAX_WEIGHT = 1e6
"""Weight of one event."""

MAX_MAGNITUDE = 1e18
"""Largest absolute value of a coordinate: a product of two stays inside float32, which ends at 3.4e38."""

MAX_INDEX = 2**31 - 1
"""Index of one entry of a sparse vector."""

MAX_SHOWN_TEXT_BYTES = 4096
"""Longest `title`, `text` and `image` of an item, in UTF-8."""

MAX_TAGS = 32
"""Tags of one item."""

MAX_RECORD_BYTES = 16 * 1024 * 1024
"""Key, value and headers of one record together; no sink takes more (`RecordRefused`), some take less."""

MAX_POLL_BYTES = 64 * 1024 * 1024
"""A poll stops adding records once their values pass this many bytes, so that memory stays bounded."""
