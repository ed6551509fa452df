"""`feed --follow` that dies, at named steps and at random: no impression is lost, none is there twice.

Impressions come in a file that is rotated, clicks in another one and in a topic. After each death more has
come. The follower that was killed has to write the very records of one that was not, each once.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from daemon.follow import follower as following
from daemon.follow.outlet import FeedOutlet
from daemon.runtime import in_hand
from daemon.runtime.in_hand import InHand
from streams import durable
from streams.feed.follow.checkpoint import FeedCheckpoints
from streams.feed.follow.files import FollowedFiles
from streams.feed.follow.join import EventTimeJoin
from streams.feed.follow.topics import FollowedTopic
from streams.kafka.source import KafkaSink
from streams.log.source import LogSink
from streams.open import ensure_topic, open_sink, open_source
from streams.partitions import TopicLimits
from streams.source import Address, OutRecord, parse_address
from tests.harness.kill.deaths import points
from tests.harness.kill.forks import Forks
from tests.harness.kill.points import KILLED, Fuse
from tests.harness.kill.seams import Seams
from tests.harness.kill.tally import Tally
from tests.harness.topics import create_topics

LISTS = 40
"""Impressions that come between two starts."""
STEP_MS = 1_000
BEGIN_MS = 1_700_000_000_000
SHOWN = 6
START_SECONDS = 60.0


@dataclass
class Shop:
    """What is followed, and by whom: a killed follower and one that is not, each with a stream of its own."""

    folder: Path
    address: Address
    spared: Address
    draw: random.Random
    lists: int = 0

    @property
    def spool(self) -> Address:
        return parse_address(f"log:{self.folder}/spool.log#clicks")

    def config(self, name: str) -> Path:
        return self.folder / f"{name}.toml"

    def begin(self) -> None:
        ensure_topic(self.spool, 2)
        for address in (self.address, self.spared):
            create_topics(address, 2, TopicLimits())
        objects = [*(f"p{one}" for one in range(50)), *(f"q{one}" for one in range(30))]
        with (self.folder / "objects.jsonl").open("wb") as file:
            file.writelines(_line({"id": one, "x": [1.0]}) for one in objects)
        for name, address in (("killed", self.address), ("spared", self.spared)):
            self.config(name).write_text(CONFIG.format(folder=self.folder, name=name, address=address))

    def more(self, lists: int) -> None:
        """So many impressions, and their clicks, out of order by less than the lateness."""
        views: list[tuple[int, dict[str, Any]]] = []
        clicks: list[tuple[int, dict[str, Any]]] = []
        for _ in range(lists):
            ts = BEGIN_MS + self.lists * STEP_MS
            name, shown = f"i{self.lists}", [f"p{one}" for one in self.draw.sample(range(50), SHOWN)]
            said = {"event": "impression", "impression": name, "ts": ts, "shown": shown}
            views.append((self._about(ts), {**said, "query": f"q{self.draw.randrange(30)}"}))
            for clicked in self.draw.sample(shown, self.draw.choice((0, 1, 1, 2, 3))):
                at = ts + self.draw.randrange(STEP_MS)
                click = {"event": "click", "impression": name, "ts": at, "object": clicked}
                clicks += [(self._about(at), click)] * self.draw.choice((1, 1, 2))
            self.lists += 1
        in_order = [one for _, one in sorted(clicks, key=lambda one: one[0])]
        if self.draw.random() < 0.3 and self._views.exists():
            self._views.rename(self.folder / f"views.log.{self.lists}")
        with self._views.open("ab") as file:
            file.writelines(_line(one) for _, one in sorted(views, key=lambda one: one[0]))
        half = len(in_order) // 2
        with (self.folder / "taps.log").open("ab") as file:
            file.writelines(_line(one) for one in in_order[:half])
        with closing(open_sink(self.spool)) as sink:
            sink.send([OutRecord(_line(one), one["impression"].encode()) for one in in_order[half:]])

    @property
    def _views(self) -> Path:
        return self.folder / "views.log"

    def _about(self, ts: int) -> int:
        return ts + self.draw.randrange(3 * STEP_MS)


CONFIG = """
[stream]
address = "{address}"
[checkpoints]
path = "{folder}/{name}"
[http]
feed_port = 0
[log]
format = "json"
[feed]
holdout_share = 0.3
negative_falls_from = 100
query_cap = 0
[catalog]
path = "{folder}/objects.jsonl"
[feed.follow]
sources = ["{folder}/views.log*", "{folder}/taps.log", "log:{folder}/spool.log#clicks"]
window = "5s"
lateness = "4s"
"""


def _line(said: dict[str, Any]) -> bytes:
    return json.dumps(said).encode() + b"\n"


def put_fuse_in_follower(fuse: Fuse) -> None:
    """Let every step of this process's follower pass the fuse."""
    seams = Seams()
    seams.put(following, "LEAST_SECONDS", 0.0)  # checkpoints as often as they are due
    seams.put(following, "READ_AT_ONCE", 7)
    seams.put(durable, "os", _FusedSystem(fuse))
    for owner, name, step in (
        (FollowedFiles, "read", "read file"),
        (FollowedTopic, "read", "read topic"),
        (EventTimeJoin, "advance", "join"),
        (FeedCheckpoints, "load", "load checkpoint"),
        (FeedCheckpoints, "save", "checkpoint"),
        (FeedOutlet, "send", "emit"),
        (FeedOutlet, "written", "look at what is there"),
        (LogSink, "send", "send"),
        (KafkaSink, "send", "send"),
        (InHand, "open", "open note"),
        (in_hand, "_mark", "note"),
        (InHand, "passed", "forget"),
    ):
        seams.put(owner, name, fuse.around(step, getattr(owner, name)))


class _FusedSystem:
    """`os`, as what writes the checkpoint knows it: what makes a file durable passes the fuse."""

    def __init__(self, fuse: Fuse) -> None:
        self._fuse = fuse

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        steps = {"replace": "rename checkpoint", "fsync": "fsync checkpoint"}
        return self._fuse.around(steps[name], real) if name in steps else real


def kill_joins(folder: Path, stream_in: Callable[[Path], str], forks: Forks, kills: int, seed: int) -> Tally:
    """Die `kills` times: at every named step first, then at random ones and by SIGKILL at random moments."""
    tally = Tally("deaths of a join that goes on for ever")
    shop = _shop(folder, stream_in, seed)
    shop.more(LISTS)
    record = folder / "steps"
    assert _run(shop, forks, "spared", ["", 0, "die", str(record)]) == 0
    steps = list(dict.fromkeys(name for name, _ in points(record, 1)))
    for number in range(kills):
        with tally.case(f"kill {number}"):
            shop.more(shop.draw.randrange(1, LISTS))
            if number < len(steps):
                _dies_at(shop, forks, steps[number], 1)
            elif number % 2:
                _dies_at(shop, forks, shop.draw.choice(steps), shop.draw.randrange(1, 6))
            else:
                _killed(shop, forks, shop.draw.random() * 0.3)
    with tally.case("the end"):
        shop.more(LISTS)
        for name in ("killed", "spared"):
            assert _run(shop, forks, name, None) == 0, _said(shop, name)
        lost, doubled, other = difference(shop)
        assert (lost, doubled, other) == (0, 0, 0), f"lost {lost}, doubled {doubled}, other {other}"
    tally.worst = f"{len(steps)} steps, {shop.lists:,} impressions, lost 0, doubled 0"
    if tally.bad:
        tally.worst = tally.bad[-1][:200]
    return tally


def difference(shop: Shop) -> tuple[int, int, int]:
    """(records that the killed one has not written, has written twice, has written beside) of both topics."""
    lost = doubled = other = 0
    for mine, spared in ((shop.address, shop.spared), (shop.address.holdout, shop.spared.holdout)):
        found, expected = Counter(records(mine)), Counter(records(spared))
        assert expected, f"{spared} is empty"
        lost += sum((expected - found).values())
        doubled += sum(count - 1 for count in found.values())
        other += len(found.keys() - expected.keys())
    return lost, doubled, other


def records(address: Address) -> Iterator[bytes]:
    """The values of a topic."""
    with closing(open_source(address)) as source:
        source.assign({number: earliest for number, (earliest, _) in source.bounds().items()})
        ends = {number: end for number, (_, end) in source.bounds().items()}
        while any(at < ends[number] for number, at in source.reached().items()):
            batch = source.poll(10_000, 1.0)
            yield from (value for value in (batch.values if batch else ()) if value is not None)


def _shop(folder: Path, stream_in: Callable[[Path], str], seed: int) -> Shop:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "other").mkdir()
    killed, spared = parse_address(stream_in(folder)), parse_address(stream_in(folder / "other"))
    shop = Shop(folder, killed, spared, random.Random(seed))
    shop.begin()
    return shop


def _dies_at(shop: Shop, forks: Forks, step: str, nth: int) -> None:
    """It dies there, or comes to the end without passing that step so often."""
    code = _run(shop, forks, "killed", [step, nth, "die", None])
    assert code in (KILLED, 0), _said(shop, "killed")


def _killed(shop: Shop, forks: Forks, after_s: float) -> None:
    pid = forks.follow(shop.config("killed"), shop.folder / "killed.stderr", ["", 0, "die", None])
    time.sleep(after_s)
    if forks.ask({"wait": pid, "seconds": 0}) is None:
        os.kill(pid, signal.SIGKILL)
        forks.ask({"wait": pid, "seconds": START_SECONDS})


def _run(shop: Shop, forks: Forks, name: str, fuse: list[Any] | None) -> int:
    pid = forks.follow(shop.config(name), shop.folder / f"{name}.stderr", fuse)
    code = forks.ask({"wait": pid, "seconds": START_SECONDS})
    assert code is not None, f"it did not end: {_said(shop, name)}"
    return int(code)


def _said(shop: Shop, name: str) -> str:
    return (shop.folder / f"{name}.stderr").read_text(encoding="utf-8")[-2_000:]
