"""Foreign input: TOML, the environment, `--set`, mappings."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import pyarrow.csv
import pyarrow.dataset  # noqa: F401

from daemon.checks import run_checks
from daemon.config import load_config, parse_setting
from daemon.exits import UserError
from daemon.setup.guess import guess
from daemon.setup.seen import look_at
from daemon.setup.written import mapping_text, settings_text
from streams.feed.items import FeedError
from streams.feed.mapping.mapping import load_mapping, recipe_text, recipes
from tests.fuzz.law import ForeignInput

ROOT = Path(__file__).parents[3]


@cache
def _folder() -> Path:
    return Path(mkdtemp(prefix="tripletd-fuzz-"))


def _file(name: str, value: bytes) -> Path:
    path = _folder() / name
    path.write_bytes(value)
    return path


def _text(value: bytes) -> str:
    """As an environment and a command line hold bytes; neither can hold a NUL."""
    return value.decode("utf-8", "surrogateescape").replace("\0", "")


def _toml(value: bytes) -> object:
    return load_config(_file("tripletd.toml", value), environ={}).values()


def _environment(value: bytes) -> object:
    name, _, text = _text(value).partition("=")
    return load_config(None, environ={f"TRIPLETD_{name}": text}).values()


def _setting(value: bytes) -> object:
    key, setting = parse_setting(_text(value))
    return load_config(None, {key: setting}, {}).values()


def _mapping(value: bytes) -> object:
    return load_mapping(str(_file("mapping.toml", value)))


def _checked(value: bytes) -> object:
    """The TOML of sections that open nothing outside, through `check`."""
    config = load_config(_file("checked.toml", value), {"http.host": "127.0.0.1"}, {})
    if "://" in repr(config.values()):
        return None
    return run_checks(config)


def _init(name: str, value: bytes) -> object:
    """What `init` makes of a file: its configuration has to load."""
    seen = look_at(str(_file(name, value)))
    made = guess([seen])
    text = settings_text(made, [seen], _folder())
    for group in made.logs:
        if group.guess is not None and not group.guess.unknown:
            written = mapping_text(group.guess, group.logs).encode("utf-8", "replace")
            load_mapping(str(_file("made.toml", written)))
    return load_config(_file("tripletd.toml", text.encode("utf-8", "replace")), environ={})


LINES = (
    b'{"sku": "a", "name": "lamp", "embedding": [0.5, 1.5, 2.0]}\n{"sku": "b", "embedding": [1, 2, 3.5]}\n',
    b'{"q": "a", "results": ["a", "b"], "clicks": ["b"], "ts": 1790000000000}\n',
    b'{"q": "a", "results": ["a", "b"], "clicked": "b", "position": 1, "ts": 1790000000000}\n',
    b'{"id": "a", "views": {"t": {"indices": [1, 5], "values": [0.5, 1.0]}}}\n',
    b'{"event": "impression", "impression": "i", "ts": 1790000000000, "query": "p1", "shown": ["p2"]}\n',
)
CSV = (
    b"search_id,query,product,position,clicked,time\nq1,a,b,0,1,2026-09-21T10:00:00\nq1,a,c,1,0,2026-09-21\n",
    b"query,results,clicks,time\na,b|c|d,c,2026-09-21T10:00:00\n",
    b"id,dim_0,dim_1,dim_2,dim_3,dim_4\na,1,2.5,3,4,5\nb,1,2,3,4,5\n",
)

INPUTS: tuple[ForeignInput, ...] = (
    ForeignInput(
        "configuration.toml",
        _toml,
        (
            (ROOT / "deploy" / "tripletd.toml").read_bytes(),
            b'[space.views.x]\ndim = 3\n[catalog]\npath = "a.jsonl"\n[learner]\nalgorithm = "omks"\n',
            b'[feed.follow]\nsources = ["a.jsonl"]\n[http]\nhosts = ["shop.example.org"]\n',
            b'[stream]\naddress = "kafka://b:9092/t"\n[stream.kafka]\nsecurity_protocol = "SSL"\n',
            b'[embeddings]\nupstream = "https://h/v1"\n[index]\nstore = "qdrant"\naddress = "http://h:6333"\n'
            b'collection = "c"\n',
        ),
        (UserError,),
        (
            b"[space.views.x]\ndim = " + b"9" * 5_000,
            b"a" * 100_000,
            b"a = //" + b"://" * 30_000,
            b"a = " + b"[" * 3_000 + b"]" * 3_000,
            b'[embeddings]\nupstream = "http://[::1"\n',
            b'[checkpoints]\npath = "' + b"x/" * 5_000 + b'"\n',
            b"[space]\nviews = 3\n",
            b"[[space.views]]\ndim = 3\n",
            b"[learner]\nalgorithm = []\n",
            b"[learner]\nkernels = [[1]]\n",
            b'[http]\nhost = "\\uD7FF"\n',
            b"[keys]\nslots = {}\n",
            b"\xef\xbb\xbf[log]\n",
        ),
    ),
    ForeignInput(
        "configuration.environment",
        _environment,
        (
            b"LEARNER__C=0.05",
            b"STREAM__KAFKA__CLIENT=confluent",
            b"SERVE__ALIASES=stable,latest",
            b"SPACE__VIEWS__X__DIM=3",
            b"CHECKPOINTS__EVERY=1h30m",
            b"HTTP__TOKEN_FILE=/dev/null",
            b"LEARNER__WEIGHTS=1.2,1.4",
        ),
        (UserError,),
        (
            b"=",
            b"__=",
            b"____=1",
            b"SPACE__=1",
            b"HTTP__TOKEN_FILE=\xff",
            b"SPACE__VIEWS__X__MAP=" + b"[" * 9_999,
        ),
    ),
    ForeignInput(
        "configuration.set",
        _setting,
        (
            b"learner.C=0.05",
            b"serve.aliases=stable,latest",
            b"space.views.x.dim=3",
            b"stream.max_record_bytes=1MiB",
            b"feed.follow.sources=a.jsonl,b.jsonl",
        ),
        (UserError,),
        (b".=", b"..=1", b"space.views.x.kernels=[", b"space.views..dim=3", b"learner.C.x=3", b"a.b"),
    ),
    ForeignInput(
        "configuration.mapping",
        _mapping,
        tuple(recipe_text(name).encode() for name in recipes()),
        (FeedError,),
        (
            b"rows = " + b"9" * 5_000,
            b"rows = " + b"[" * 3_000 + b"]" * 3_000,
            b'rows = "shown"\nwindow = nan\n',
        ),
    ),
    ForeignInput(
        "configuration.check",
        _checked,
        (
            b'[space.views.x]\ndim = 3\n[learner]\nalgorithm = "oasis"\n[serving]\npower = 1.0\n',
            b"[space.views.x]\ndim = 100\n[keys]\nslots = 3\n[caps]\nsource = 1.0\nwindow = 5\n",
        ),
        (UserError,),
        (b"[space.views.x]\ndim = 100000000\n[keys]\nslots = 100000\n",),
    ),
    ForeignInput(
        "configuration.init.lines",
        lambda value: _init("seen.jsonl", value),
        LINES,
        (UserError,),
        (b"[1, 2]\n", b"3\n"),
    ),
    ForeignInput(
        "configuration.init.csv",
        lambda value: _init("seen.csv", value),
        CSV,
        (UserError,),
        (json.dumps([1]).encode(), b"a,a\n1,2\n", b"\n\n", b",\n,\n"),
    ),
)
"""What is written by hand, and what `init` looks at."""
