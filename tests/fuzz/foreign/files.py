"""Foreign input: what feed --follow reads, from a line of a file to a list that is closed and decided."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import msgpack

from streams.event import Impression
from streams.feed.decide import Decider
from streams.feed.follow.checkpoint import pack
from streams.feed.follow.examined import RecentExamination
from streams.feed.follow.files import FollowedFiles
from streams.feed.follow.join import EventTimeJoin, JoinSettings
from streams.feed.follow.records import RawRecord, RecordReader
from streams.feed.items import UNREADABLE, UnclickedList
from streams.feed.mapping.mapping import load_mapping
from streams.feed.options import FeedSettings, ReaderOptions
from streams.feed.triplets import SeenCandidates
from streams.limits import MAX_SHOWN
from streams.source import Headers
from tests.fuzz.law import ForeignInput

TS = 1_700_000_000_000
SHOWN = {
    "event": "impression",
    "impression": "i-1",
    "ts": TS,
    "query": "q1",
    "shown": ["p1", "p2", "p3"],
    "key": "de",
    "source": "search",
    "propensity": [1.0, 0.5, 0.25],
}
CLICK = {"event": "click", "impression": "i-1", "ts": TS + 1, "object": "p2", "key": ["de", "at"]}
WHOLE = {"id": "i-2", "ts": TS, "q": "q1", "shown": ["p1", "p2", "p3"], "clicked": [2, "p1"], "src": "x"}
IN_SESSION = {"event": "impression", "impression": "i-3", "session": "s", "ts": TS, "query": "q"}
CLOUD = {
    "specversion": "1.0",
    "id": "i-4",
    "type": "shop.click",
    "time": "2024-01-01T00:00:00Z",
    "data": CLICK,
}


class NothingTaken(Exception):
    """No line was taken, which is an answer."""


def _decided(
    mapping: str | None, headers_of: Callable[[bytes], Headers] = lambda line: ()
) -> Callable[[bytes], object]:
    """Reads lines as the role does, behind a good one: joined, closed, decided and looked at; then once more,
    as late clicks and repeats; with a checkpoint in between."""
    loaded = None if mapping is None else load_mapping(mapping)
    good = RawRecord("good", _line({**SHOWN, "impression": "good"}))

    def read(value: bytes) -> None:
        join = EventTimeJoin(JoinSettings(window_ms=1_000))
        decider = Decider(FeedSettings(holdout_share=0.3), SeenCandidates())
        examination, reasons = RecentExamination(b"0123456789abcdef"), []
        for ahead in (0, 2_000, 4 * TS):
            reader = RecordReader(join, ReaderOptions(TS), loaded)
            reader.latest_ms = 4 * TS
            lines = enumerate(value.split(b"\n"))
            reader.take([good, *(RawRecord(f"f:{n}", line, headers_of(line)) for n, line in lines if line)])
            join.advance(TS + ahead)
            for _, item in join.drained():
                decision = decider.decide(item)
                reasons.append(decision.reason)
                if decision.accepted and isinstance(item, Impression | UnclickedList):
                    examination.add(item)
            packed = pack({"join": join.snapshot(), "decided": decider.snapshot()})
            said = msgpack.unpackb(packed, unicode_errors="surrogatepass", strict_map_key=False)
            join = EventTimeJoin.restored(JoinSettings(window_ms=1_000), said["join"])
            decider.restore(said["decided"])
        examination.estimate()
        assert UNREADABLE not in reasons, "an error that nobody thought of"
        if join.remembered_lists + join.open_lists < 2:
            raise NothingTaken

    return read


def _file(value: bytes) -> None:
    """A file that grows, is cut and written anew between looks."""
    half = len(value) // 2
    with TemporaryDirectory() as folder:
        path = Path(folder, "a.log")
        files = FollowedFiles(f"{folder}/*", {})
        for content in (value[:half], value, value[half:], b"", value):
            path.write_bytes(content)
            files.look(0.0)
            for one in files.files():
                while files.read(one, 100, 0.0):
                    pass
            places = json.loads(json.dumps(files.places()))
            files.close()
            files = FollowedFiles(files.pattern, places)
        files.close()


def _headers(line: bytes) -> Headers:
    """Of a CloudEvent; parts of the line stand in for what others would write there."""
    time, name = (b"2024-01-01T00:00:00Z", b"i-1") if len(line) % 2 else (line[:30], line[-30:])
    return (("ce_type", b"shop.impression"), ("ce_id", name), ("ce_time", time), ("other", line[:5]))


def _line(said: object) -> bytes:
    return json.dumps(said).encode()


HALF = "desk lam\ud83d"
OWN = (
    _line(SHOWN) + b"\n" + _line(CLICK),
    _line(WHOLE),
    _line({**IN_SESSION, "shown": ["a", "b"]})
    + b"\n"
    + _line({"event": "click", "session": "s", "query": "q", "ts": TS + 5, "object": "b"}),
    _line(SHOWN) + b"\n" + _line(CLOUD),
)
WORST = (
    _line({**SHOWN, "query": HALF}) + b"\n" + _line(CLICK) + b"\n" + _line({**CLICK, "object": "p3"}),
    _line({**SHOWN, "query": HALF}),
    _line({**SHOWN, "key": HALF}) + b"\n" + _line({**CLICK, "key": HALF}),
    _line({**SHOWN, "impression": HALF}) + b"\n" + _line({**CLICK, "impression": HALF}),
    _line({**SHOWN, "shown": ["p1", HALF, "x" * 10_000]}) + b"\n" + _line(CLICK),
    _line({**SHOWN, "shown": [f"p{n}" for n in range(MAX_SHOWN + 1)]}),
    b"\n".join(
        [_line({**SHOWN, "propensity": None, "shown": [f"p{n}" for n in range(100_000)]})]
        + [_line({**CLICK, "object": f"p{n}"}) for n in range(500)]
    ),
    b"\n".join(
        [_line({**IN_SESSION, "impression": f"i{n}", "shown": ["a"]}) for n in range(1_500)]
        + [
            _line({"event": "click", "session": "s", "query": "q", "ts": TS + 5, "object": f"b{n}"})
            for n in range(200)
        ]
    ),
    _line({**SHOWN, "propensity": [2**64, 0.5, 0.25]}),
    _line({**SHOWN, "ts": "0001-01-01T00:00:00+14:00"}),
    _line({**SHOWN, "ts": "9999-12-31T23:59:59.999999-23:59"}),
)
INPUTS: tuple[ForeignInput, ...] = (
    ForeignInput("followed records", _decided(None), OWN, (NothingTaken,), WORST),
    ForeignInput(
        "followed events of a cloud",
        _decided(None, _headers),
        (_line(WHOLE), _line({**SHOWN, "ts": None, "impression": "i-77"})),
        (NothingTaken,),
        WORST,
    ),
    ForeignInput("followed rows of a mapping", _decided("http"), OWN[:1], (NothingTaken,), WORST),
    ForeignInput("followed file", _file, (b"\n".join(OWN) + b"\n", b"\n".join(WORST[:5])), ()),
)
