"""What is followed, side by side: always the one that is behind in event time is read next.

Its watermark is the time up to which every one that has more to read was read, less the allowed lateness: one
that was read to its end holds back nobody. Where all were read to their ends, it goes on with the clock.
"""

from __future__ import annotations

import resource
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from streams.errors import OffsetExpired, StreamUnavailable
from streams.feed.follow.files import FollowedFile, FollowedFiles, shown
from streams.feed.follow.guard import UNGUARDED, Guard, Held
from streams.feed.follow.records import RawRecord
from streams.feed.follow.schemas import SchemaDecoder
from streams.feed.follow.topics import FollowedTopic
from streams.source import KafkaSettings, parse_address

LOOK_SECONDS = 1.0
"""Between two looks for new files."""
AGAIN_SECONDS = 0.05
"""Between two looks at what was read to its end."""
ABSENT_SECONDS = 1.0
"""The same where the look failed, or there is no such topic yet."""
MOST_DESCRIPTORS = 512
"""Files of all patterns that are open at a time; at most half of what the process may open."""
ADDRESSES = ("log:", "memory:", "kafka:")


@dataclass(slots=True)
class Lane:
    """One file or topic. `rests_until`: it was read to its end, or cannot be read now (`trouble`)."""

    files: FollowedFiles | None = None
    file: FollowedFile | None = None
    topic: FollowedTopic | None = None
    rests_until: float | None = None
    trouble: str = ""

    @property
    def newest(self) -> int:
        """The time up to which it was read, ms."""
        if self.file is not None:
            return self.file.newest
        return self.topic.newest() if self.topic is not None else 0

    @property
    def held(self) -> Held:
        """Where the records are that were read last."""
        source = self.file if self.file is not None else self.topic
        assert source is not None
        assert source.held is not None
        return source.held

    def read(self, most: int, now: float) -> list[RawRecord]:
        """Next records; none at the end."""
        if self.topic is not None:
            return self.topic.read(most, now)
        assert self.files is not None
        assert self.file is not None
        return self.files.read(self.file, 1 if not self.file.offset else most, now)

    def saw(self, newest: int) -> None:
        """The latest time among the records that were read last."""
        if self.file is not None:
            self.file.newest = max(self.file.newest, newest)
        elif self.topic is not None:
            self.topic.saw(newest)


class Intake:
    """Sources by what the configuration calls them: paths and patterns of files, addresses of topics.

    `places`: those of an earlier `places()`. kafka: addresses of Kafka get it. schemas: decodes records of
    topics. guard: what the role died with. Raises AddressError.
    """

    def __init__(
        self,
        sources: Sequence[str],
        places: Mapping[str, Any],
        lateness_ms: int,
        kafka: KafkaSettings | None = None,
        schemas: SchemaDecoder | None = None,
        *,
        guard: Guard = UNGUARDED,
    ) -> None:
        self._lateness_ms, self._schemas = lateness_ms, schemas
        self.files: dict[str, FollowedFiles] = {}
        self._topics: dict[str, Lane] = {}
        self._lanes: dict[str, Lane] = {}
        self._looked = float("-inf")
        self._news_at: float | None = None
        patterns = sum(not name.startswith(ADDRESSES) for name in sources)
        descriptors = min(MOST_DESCRIPTORS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)
        most_open = max(1, descriptors // max(1, patterns))
        for name in sources:
            known = places.get(name, {})
            if name.startswith(ADDRESSES):
                address = parse_address(name)
                address = replace(address, kafka=kafka) if address.scheme == "kafka" else address
                topic = FollowedTopic(address, known, schemas=schemas, guard=guard)
                self._topics[name] = Lane(topic=topic)
            else:
                self.files[name] = FollowedFiles(name, known, most_open, guard)

    def next(self, most: int, now: float) -> tuple[Lane, list[RawRecord]] | None:
        """The next records, and where they are from: tell it the latest time in them. None: all rests."""
        self._look(now)
        self._news_at = now if self._news_at is None else self._news_at
        awake = [one for one in self._all() if one.rests_until is None or one.rests_until <= now]
        for lane in sorted(awake, key=lambda one: one.newest):
            records = self._read(lane, most, now)
            if records:
                self._news_at = now
                return lane, records
        return None

    def watermark(self, now: float) -> int:
        """Up to when everything has come, ms; 0 before any record. `now` is monotonic, in seconds."""
        lanes = self._all()
        active = [one.newest for one in lanes if one.rests_until is None or one.trouble]
        if active:
            return max(0, min(active) - self._lateness_ms)
        read = [one.newest for one in lanes] + [files.newest for files in self.files.values()]
        newest = max(read, default=0)
        if not newest or self._news_at is None:
            return 0
        return max(0, newest + round(1000 * (now - self._news_at)) - self._lateness_ms)

    def at_rest(self) -> bool:
        """Whether all was read to its end."""
        return all(one.rests_until is not None and not one.trouble for one in self._all())

    def trouble(self) -> list[str]:
        """What cannot be read now, and why."""
        left_out = [
            f"{shown(path)}: {why}" for one in self.files.values() for path, why in one.left_out.items()
        ]
        held = (one.topic.trouble for one in self._topics.values() if one.topic)
        return [*left_out, *(one.trouble for one in self._all() if one.trouble), *filter(None, held)]

    def behind(self) -> dict[str, int]:
        """By source what waits: bytes of files, records of topics."""
        found = {name: files.behind() for name, files in self.files.items()}
        return found | {name: one.topic.behind() for name, one in self._topics.items() if one.topic}

    def places(self) -> dict[str, Any]:
        """Where each source is read next, as plain data."""
        found: dict[str, Any] = {name: files.places() for name, files in self.files.items()}
        return found | {name: one.topic.place() for name, one in self._topics.items() if one.topic}

    def positions(self) -> dict[int, int]:
        """The same for a guard: by file and partition."""
        found = [one.positions() for one in self.files.values()]
        found += [one.topic.positions() for one in self._topics.values() if one.topic]
        return {number: at for each in found for number, at in each.items()}

    def notes(self) -> list[str]:
        """What is worth telling since the last call."""
        told = [files.notes for files in self.files.values()]
        told += [lane.topic.notes for lane in self._topics.values() if lane.topic]
        told += [self._schemas.notes] if self._schemas else []
        found = [note for notes in told for note in notes]
        for notes in told:
            notes.clear()
        return found

    def close(self) -> None:
        """Close all of them."""
        for files in self.files.values():
            files.close()
        for lane in self._topics.values():
            if lane.topic is not None:
                lane.topic.close()

    def _read(self, lane: Lane, most: int, now: float) -> list[RawRecord]:
        try:
            records = lane.read(most, now)
        except (OSError, StreamUnavailable) as error:
            lane.trouble, lane.rests_until = str(error), now + ABSENT_SECONDS
            return []
        except OffsetExpired as error:
            assert lane.topic is not None
            lane.topic.expired(error)
            return []
        lane.trouble = ""
        missing = lane.topic is not None and lane.topic.missing
        more = bool(records) or (lane.topic is not None and lane.topic.waits())
        lane.rests_until = None if more else now + (ABSENT_SECONDS if missing else AGAIN_SECONDS)
        return records

    def _look(self, now: float) -> None:
        if now - self._looked < LOOK_SECONDS:
            return
        self._looked = now
        found: dict[str, Lane] = {}
        for name, files in self.files.items():
            files.look(now)
            for one in files.files():
                key = f"{name} {one.identity}"
                found[key] = self._lanes.get(key) or Lane(files=files, file=one)
        self._lanes = found

    def _all(self) -> list[Lane]:
        return [*self._lanes.values(), *self._topics.values()]
