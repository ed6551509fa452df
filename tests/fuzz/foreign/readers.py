"""Foreign input: what feed reads once, logs, labels, relevances, rows by a mapping; and judgments."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import msgpack
import pyarrow
import pyarrow.csv
import pyarrow.parquet
import zstandard

from daemon.validate.judgments import JudgmentsError, load_judgments
from streams.codec import encode_event, encode_impression
from streams.event import Event, Impression, ObjectRef
from streams.feed.formats import read_sources
from streams.feed.items import FeedError
from streams.feed.mapping.mapping import read_mapping, recipe_text, recipes
from streams.feed.options import (
    IMPRESSIONS,
    LABELS,
    MSGPACK,
    RELEVANCE,
    TRIPLETS,
    ReaderOptions,
    RelevanceOptions,
)
from streams.feed.readers import drawn
from tests.fuzz.foreign.catalogs import HUGE_LINES
from tests.fuzz.law import ForeignInput

FOLDER = Path(tempfile.mkdtemp(prefix="tripletd-fuzz-"))
OPTIONS = ReaderOptions(now_ms=1_700_000_000_000, relevance=RelevanceOptions(triplets=5))
SAMPLES = Path(__file__).parents[2] / "streams/feed/samples"


def _read(value: bytes, name: str, options: ReaderOptions, wanted: str | None) -> None:
    path = FOLDER / name
    path.write_bytes(value)
    with patch.object(drawn, "CHUNK", 16):  # of triplets drawn at a time: so many make this slow
        for _ in read_sources([str(path)], options, wanted):
            pass


def log(wanted: str | None, **changed: object) -> Callable[[bytes], None]:
    """Reads a log of a format that is named, or told from its first line."""
    options = replace(OPTIONS, relevance=replace(OPTIONS.relevance, **changed))
    return lambda value: _read(value, "log", options, wanted)


def mapped(mapping: str, suffix: str) -> Callable[[bytes], None]:
    """Reads rows of another tool."""
    options = replace(OPTIONS, mapping=mapping)
    return lambda value: _read(value, f"log{suffix}", options, None)


def judgments(kind: str) -> Callable[[bytes], None]:
    """Reads judgments."""

    def read(value: bytes) -> None:
        path = FOLDER / "judged"
        path.write_bytes(value)
        load_judgments(f"{kind}:{path}")

    return read


def _lines(*lines: object) -> bytes:
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


IMPRESSION = {"id": "i", "ts": 1700000000000, "q": "q", "shown": ["a", {"x": [0.5, 1]}], "clicked": [1, "a"]}
IMPRESSION |= {"prop": [1, 0.5], "src": "web", "sp": "default", "key": "k"}
TRIPLET = {"q": "q", "c": {"views": {"v": [1, 2.5]}}, "s": {"x": {"indices": [1, 4], "values": [1, 2]}}}
TRIPLET |= {"id": "t", "ts": "2024-05-16T12:00:00Z", "w": 2, "src": "s", "imp": "i", "prop": 0.5}
REFS = [ObjectRef(id=one) for one in "qcs"]
PACKED = encode_event(Event("e", 5, *REFS)) + encode_impression(
    Impression("i", 5, REFS[0], tuple(REFS[1:]), (1,))
)
TABLE = b"a\tred\nb\tred\tround\nc\tblue\t\tround\nd\tblue\n"
COUNTS = b"query\tobject\tcount\nq\ta\t3\nq\tb\t1\nr\tc\t2\nr\td\t1.5\n"
QRELS = b"q 0 a 1\nq 0 b 0\nr 0 c 2\n"
DIGITS = b"9" * 4_000
BOMB = gzip.compress(b"x" * 200_000_000, 1), zstandard.ZstdCompressor().compress(b"x" * 300_000_000)
BROKE = (
    b'{"q":"q","c":"c","s":"s","ts":' + DIGITS + b"}\n",
    b'{"q":"q","c":"c","s":"s","w":' + DIGITS + b"}\n",
    b'{"q":"q","c":{"x":[' + DIGITS + b']},"s":"s"}\n',
    b'{"q":"q","c":{"x":{"indices":[' + DIGITS + b'],"values":[1]}},"s":"s"}\n',
    b'{"id":"i","ts":1,"q":"q","shown":["a"],"clicked":[' + DIGITS + b"]}\n",
    b'{"q":"q","c":"c","s":"s","ts":"0001-01-01T00:00:00+23:59"}\n',
    b'{"q":"q","c":"c","s":"s","ts":"9999-12-31T23:59:59-23:59"}\n',
    *BOMB,
    *(line.replace(b'"id":"a","x"', b'"q":"q","shown"') for line in HUGE_LINES),
)


def _table(lines: bytes, write: Callable[[pyarrow.Table, io.BytesIO], object], nested: bool = True) -> bytes:
    rows = [json.loads(line) for line in lines.splitlines()]
    if not nested:
        rows = [
            {k: json.dumps(v) if isinstance(v, dict | list) else v for k, v in row.items()} for row in rows
        ]
    out = io.BytesIO()
    write(pyarrow.Table.from_pylist(rows), out)
    return out.getvalue()


def _recipes() -> list[ForeignInput]:
    found = []
    for recipe in ("ga4", "segment", "snowplow"):
        lines = (SAMPLES / f"{recipe}.jsonl").read_bytes()
        odd = tuple(
            line.replace(b"1773", DIGITS, 1) + b"\n" for line in lines.splitlines() if b"1773" in line
        )
        each = tuple(line + b"\n" for line in lines.splitlines())
        found.append(
            ForeignInput(f"readers.{recipe}", mapped(recipe, ".jsonl"), (*each, lines), (FeedError,), odd)
        )
    lines = (SAMPLES / "snowplow.jsonl").read_bytes()
    parquet = _table(lines, pyarrow.parquet.write_table)
    csv = _table(lines, pyarrow.csv.write_csv, nested=False)
    found.append(ForeignInput("readers.parquet", mapped("snowplow", ".parquet"), (parquet,), (FeedError,)))
    found.append(ForeignInput("readers.csv", mapped("snowplow", ".csv"), (csv,), (FeedError,)))
    return found


INPUTS = (
    ForeignInput(
        "readers.log", log(None), (_lines(IMPRESSION), _lines(TRIPLET), PACKED, COUNTS), (FeedError,), BROKE
    ),
    ForeignInput(
        "readers.impressions", log(IMPRESSIONS), (_lines(IMPRESSION), json.dumps(IMPRESSION).encode()),
        (FeedError,), BROKE,
    ),
    ForeignInput(
        "readers.triplets", log(TRIPLETS), (_lines(TRIPLET), json.dumps(TRIPLET).encode()),
        (FeedError,), BROKE,
    ),
    ForeignInput("readers.msgpack", log(MSGPACK), (PACKED, msgpack.packb(IMPRESSION)), (FeedError,)),
    ForeignInput("readers.labels", log(LABELS), (TABLE, b"\xef\xbb\xbf" + TABLE), (FeedError,)),
    ForeignInput(
        "readers.relevance", log(RELEVANCE), (COUNTS,), (FeedError,), (COUNTS + b"q\ta\t" + DIGITS,)
    ),
    ForeignInput("readers.co_click", log(RELEVANCE, pairs="co_click", share=0.5), (COUNTS,), (FeedError,)),
    ForeignInput("readers.theta", log(RELEVANCE, theta=0.01), (COUNTS,), (FeedError,)),
    ForeignInput(
        "readers.packed",
        log(None),
        tuple(
            pack(_lines(IMPRESSION, TRIPLET))
            for pack in (gzip.compress, bz2.compress, lzma.compress, zstandard.ZstdCompressor().compress)
        ),
        (FeedError,),
    ),
    *_recipes(),
    ForeignInput(
        "readers.mapping",
        lambda value: read_mapping(value.decode(), "mapping.toml"),
        tuple(recipe_text(name).encode() for name in recipes()),
        (FeedError, UnicodeDecodeError),
        (b'rows = "triplets"\nunit = ' + DIGITS, b'rows = "impressions"\nid = "a[' + DIGITS + b']"'),
    ),
    ForeignInput("readers.qrels", judgments("qrels"), (QRELS,), (JudgmentsError,), (b"q 0 a " + DIGITS,)),
    ForeignInput("readers.judged_labels", judgments("labels"), (TABLE[:12],), (JudgmentsError,)),
)  # fmt: skip
