"""What becomes of each item: fed to training, fed to the holdout, or dropped for a reason.

Decisions are pure of I/O: records are encoded here and written elsewhere. They depend on earlier items
only through bounded memories: the ids already fed, and the impressions kept per query.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Container, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, Literal, NamedTuple

from streams.catalog import check_features
from streams.codec import encode_event, encode_impression
from streams.event import ONLY_ARMS, Event, Impression, ObjectRef, SpaceSpec
from streams.feed import items as reasons
from streams.feed.items import Dropped, Ignored, Item, LateClick, UnclickedList, scoped
from streams.feed.kinds import HeldOutKinds
from streams.feed.options import LEAST_APART, FeedSettings
from streams.feed.triplets import Candidates, Made, as_impression, make_correction, make_events, without
from streams.limits import MAX_SHOWN, MAX_TEXT_BYTES
from streams.partitions import is_holdout, partition_of, route_key
from streams.poison import OUT_OF_RANGE, TOO_LARGE, Poison
from streams.queries import VectorMaps, query_in_views
from streams.signed_lists import BadSignature, is_signed, read_signed
from streams.source import OutRecord

MAX_QUERIES = 1_000_000
"""Queries whose count is remembered (some 150 bytes each); the one longest unseen is forgotten first."""
KEPT_QUERIES = 100_000
"""Of those, the newest that a checkpoint holds: some 3 MB."""


class SeenIds:
    """The last `size` different ids, oldest forgotten first; 0 remembers none."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._ids: OrderedDict[Hashable, None] = OrderedDict()

    def __contains__(self, name: Hashable) -> bool:
        return name in self._ids

    def __iter__(self) -> Iterator[Hashable]:
        """From the oldest on."""
        return iter(self._ids)

    def add(self, name: Hashable) -> bool:
        """Remember an id; one already there keeps its age. Whether it was not there."""
        ids = self._ids
        if name in ids:
            return False
        if self._size:
            ids[name] = None
            if len(ids) > self._size:
                ids.popitem(last=False)
        return True


class QueryCap:
    """How often each query of each key was kept, up to `cap`; 0 is no cap."""

    def __init__(self, cap: int, max_queries: int = MAX_QUERIES) -> None:
        self._cap = cap
        self._max_queries = max_queries
        self.kept: OrderedDict[Hashable, int] = OrderedDict()

    def full(self, query: Hashable) -> bool:
        """Whether this query has reached the cap."""
        return bool(self._cap) and self.kept.get(query, 0) >= self._cap

    def add(self, query: Hashable, count: int = 1) -> None:
        """Count one more kept for this query."""
        if not self._cap:
            return
        self.kept[query] = self.kept.get(query, 0) + count
        self.kept.move_to_end(query)
        if len(self.kept) > self._max_queries:
            self.kept.popitem(last=False)


REFUSALS = (Poison, BadSignature, UnicodeEncodeError)
"""What a list is refused by."""
NO_LISTS = (reasons.DUPLICATE, reasons.BAD_SIGNATURE, reasons.IN_THE_FUTURE)

Fate = Literal["training", "correction", "holdout", "dropped", "ignored"]

_NOTHING_MADE = Made(())


class Decision(NamedTuple):
    """The fate of one item.  `holdout` goes to the holdout topic, the list itself, also where it is learned
    from; `training` after it to the training topic, `made` is of that; `ts` is the time of what was kept, ms;
    `draft` what became of the draft of a signed list, "" for other lists; `explored`: that chance had placed
    an object in it, which its id proves."""

    fate: Fate
    reason: str = ""
    detail: str = ""
    training: tuple[OutRecord, ...] = ()
    holdout: tuple[OutRecord, ...] = ()
    made: Made = _NOTHING_MADE
    ts: int | None = None
    draft: str = ""
    explored: bool = False

    @property
    def accepted(self) -> bool:
        """Whether it was a list as somebody was shown it, fed or not: estimates look at no other."""
        refused = self.reason in NO_LISTS or self.reason.startswith(reasons.MALFORMED)
        return self.fate in ("training", "holdout", "dropped") and not refused


class Decider:
    """Decides item by item; `known` holds the catalog's ids, None where there is no catalog.

    space: what features that come with an object are checked against; None: by who learns them alone. kinds:
    of queries that are held out as a whole. queries: of which other models vectors of queries may be. fed:
    how many events the training topic holds already; the attribute counts on those that learners of pairs
    above the clicks take: what random negatives weigh does not depend on whether others are made.
    """

    def __init__(
        self,
        settings: FeedSettings,
        candidates: Candidates,
        known: Container[str] | None = None,
        space: SpaceSpec | None = None,
        kinds: HeldOutKinds | None = None,
        *,
        queries: VectorMaps | None = None,
        fed: int = 0,
    ) -> None:
        self.fed = fed
        self._settings = settings
        self._space, self._queries = space, queries or {}
        self._candidates = candidates
        self._known = known
        self._kinds = kinds
        self._seen = SeenIds(settings.dedupe_window)
        self._cap = QueryCap(settings.query_cap)

    def afresh(self, fed: int) -> Decider:
        """One that decides as this one and remembers no list; `fed`: as in `__init__`. Objects that it has
        seen are shared, where there is no catalog."""
        given = self._settings, self._candidates, self._known, self._space, self._kinds
        return Decider(*given, queries=self._queries, fed=fed)

    def begin_day(self) -> None:
        """Of a log without an end, the cap per query is one per day."""
        self._cap = QueryCap(self._settings.query_cap)

    def see(self, shown: Sequence[str]) -> None:
        """Be told of objects that an earlier run decided on: negatives are drawn from them too, as far as a
        record can hold their ids."""
        self._candidates.see([name for name in shown if _fits(name)])

    def snapshot(self) -> dict[str, Any]:
        """What it remembers, as plain data for a checkpoint: the ids, and how often queries were kept."""
        kept = self._cap.kept
        newest = islice(kept.items(), max(0, len(kept) - KEPT_QUERIES), None)
        return {"fed": self.fed, "seen": list(self._seen), "kept": list(newest)}

    def restore(self, said: Mapping[str, Any]) -> None:
        """Go on from a snapshot; what an older one does not have stays. Raises TypeError, ValueError."""
        self.fed = int(said.get("fed", self.fed))
        for name in said.get("seen", ()):
            self._seen.add(hashable(name))
        for query, count in said.get("kept", ()):
            self._cap.add(hashable(query), int(count))

    def decide(self, item: Item | LateClick | UnclickedList) -> Decision:
        """The fate of the next item. A late click gives the events that set right what its list taught.

        The reasons are looked at in this order: malformed, duplicate, in_the_future, bad_signature, no_click,
        unknown_object, query_cap, then whether anything can be learned from it. What is malformed or forged
        leaves no trace: its id stays free, and its objects are drawn for nobody.
        """
        if isinstance(item, Ignored | Dropped):
            return Decision("ignored" if isinstance(item, Ignored) else "dropped", item.reason, item.detail)
        try:
            decision = self._late(item) if isinstance(item, LateClick) else self._first(item)
        except REFUSALS as error:
            if isinstance(item, LateClick):
                return Decision("ignored", reasons.CLICK_NOT_SHOWN, "its list was refused")
            return refused(error)
        self.fed += decision.made.for_above
        return decision

    def _first(self, item: Event | Impression | UnclickedList) -> Decision:
        """The fate of an item by its id. Raises Poison, BadSignature or UnicodeEncodeError."""
        check_texts(item)
        name = scoped(item.id, item.key)
        if name in self._seen:
            return _drop(reasons.DUPLICATE, f"id {item.id!r}")
        decision = self._unclicked(item) if isinstance(item, UnclickedList) else self._new(item)
        self._seen.add(name)
        return decision

    def _new(self, item: Event | Impression) -> Decision:
        self._check_time(item.ts)
        self._check_features(item)
        if isinstance(item, Event):
            return self._triplet(item)
        impression, draft = self._proved(item)
        decision = self._impression(impression)
        if not draft or decision.fate == "dropped":
            return decision
        explored = impression.draft is not None and impression.draft.explored is not None
        return decision._replace(draft=draft, explored=explored)

    def _unclicked(self, item: UnclickedList) -> Decision:
        """What `_new` says of its impression, which is made only where its signature is to be checked."""
        if is_signed(item.id):
            return self._new(item.impression())
        self._check_time(item.ts)
        self._candidates.see(item.shown)
        return _no_click(len(set(item.shown)))

    def _late(self, late: LateClick) -> Decision:
        """A late click on a list that had one is learned as a correction; else its list is decided anew.
        Raises as `_first`, where the list itself was refused."""
        check_texts(late.impression)
        if not late.impression.clicked:
            return self._new(replace(late.impression, clicked=(late.rank,)))
        self._check_time(late.impression.ts)
        proved, _ = self._proved(late.impression)
        unknown, key = self._unknown_ranks(proved), route_key(proved.query)
        if late.rank in unknown or self._is_unknown(proved.query):
            return Decision("ignored", reasons.UNKNOWN_OBJECT, "a late click")
        if self._kind_of(proved.query) is not None or self._is_holdout(key, proved.id):
            return Decision("ignored", reasons.LATE_HELD_OUT, f"id {proved.id[:80]!r}")
        made = make_correction(proved, late.rank, unknown, self._candidates, self._settings, fed=self.fed)
        if not made.events:
            return Decision("ignored", reasons.NO_PAIR, "a late click")
        return Decision("correction", training=self._event_records(made, key), made=made, ts=proved.ts)

    def _proved(self, impression: Impression) -> tuple[Impression, str]:
        """The impression with the draft that its id proves, and with no other; what became of it. Raises
        BadSignature."""
        proof = self._settings.proof
        if not is_signed(impression.id):
            return replace(impression, draft=None) if impression.draft else impression, ""
        if proof is None:
            return replace(impression, draft=None), reasons.NO_SECRET
        said = read_signed(proof.secret, impression)
        if said.ts < proof.earliest_ms:
            return replace(impression, draft=None), reasons.TOO_LATE
        return replace(impression, draft=said.draft), reasons.PROVED

    def _check_time(self, ts: int) -> None:
        latest = self._settings.latest_ms
        if latest is not None and ts > latest:
            raise Poison(reasons.IN_THE_FUTURE, f"ts {ts}")

    def _check_features(self, item: Event | Impression) -> None:
        """Raise Poison for features that do not fit the space, unless they are said to be of another."""
        if self._space is None or item.space not in (None, self._space.id):
            return
        if isinstance(item, Event):
            named = [("clicked", item.clicked), ("skipped", item.skipped)]
        else:
            named = [(f"shown[{rank}]", ref) for rank, ref in enumerate(item.shown)]
        query = query_in_views(item.query, self._space, self._queries, "query")
        named = [("query", query), *named]
        for where, ref in named:
            check_features(ref, self._space, where)

    def _triplet(self, event: Event) -> Decision:
        for field, ref in (("query", event.query), ("clicked", event.clicked), ("skipped", event.skipped)):
            if self._is_unknown(ref):
                return _unknown(field, ref)
        key = route_key(event.query)
        if self._cap.full(scoped(key, event.key)):
            return _drop(reasons.QUERY_CAP, f"query {_name(event.query)}")
        if self._names_space(event.space, event.query, event.clicked, event.skipped):
            event = replace(event, space=self._settings.space)
        kind = self._kind_of(event.query)
        if kind is not None or self._is_holdout(key, event.id):
            held = replace(as_impression(event), kind=kind)
            return self._kept("holdout", held, key, _NOTHING_MADE, held)
        return self._kept("training", event, key, Made((event,), pairs=1))

    def _impression(self, impression: Impression) -> Decision:
        self._candidates.see(impression.shown)
        if not impression.clicked:
            return _no_click(len(impression.shown))
        if self._is_unknown(impression.query):
            return _unknown("query", impression.query)
        unknown = self._unknown_ranks(impression)
        if unknown.issuperset(impression.clicked):
            return _unknown("clicked", impression.shown[impression.clicked[0]])
        key = route_key(impression.query)
        if self._cap.full(scoped(key, impression.key)):
            return _drop(reasons.QUERY_CAP, f"query {_name(impression.query)}")
        if self._names_space(impression.space, impression.query, *impression.shown):
            impression = replace(impression, space=self._settings.space)
        kind = self._kind_of(impression.query)
        if kind is not None or self._is_holdout(key, impression.id):
            return self._to_holdout(impression, unknown, key, kind)
        return self._to_training(impression, unknown, key)

    def _to_holdout(
        self, impression: Impression, unknown: frozenset[int], key: bytes, kind: str | None
    ) -> Decision:
        held = replace(without(impression, unknown), kind=kind, trained=False, for_arms=False)
        if len(held.clicked) == len(held.shown):
            return _drop(reasons.ALL_CLICKED, f"{len(held.shown)} shown, holdout")
        apart = kind is not None or self._is_holdout(key, impression.id, LEAST_APART)
        if apart or not self._settings.for_arms or impression.ts == self._settings.untimed_ms:
            return self._kept("holdout", held, key, _NOTHING_MADE, held)
        made = make_events(impression, unknown, self._candidates, self._settings, self.fed)
        alone = tuple(replace(event, pair=event.pair | ONLY_ARMS) for event in made.events)
        held = replace(held, for_arms=bool(alone))
        return self._kept("holdout", held, key, replace(made, events=alone), held)

    def _to_training(self, impression: Impression, unknown: frozenset[int], key: bytes) -> Decision:
        made = make_events(impression, unknown, self._candidates, self._settings, self.fed)
        if made.events:
            return self._kept("training", impression, key, made, self._bet_on(without(impression, unknown)))
        shown = f"{len(impression.shown)} shown, clicked {list(impression.clicked)}"
        if made.lost_pairs:
            return _drop(reasons.UNKNOWN_OBJECT, f"{shown}: the skipped objects are not in the catalog")
        if len(impression.clicked) == len(impression.shown):
            return _drop(reasons.ALL_CLICKED, shown)
        above = self._settings.rule in ("skip_above", "last_click")
        return _drop(reasons.NO_SKIPPED_ABOVE if above else reasons.NO_PAIR, shown)

    def _kept(
        self,
        fate: Fate,
        item: Event | Impression,
        key: bytes,
        made: Made,
        judged: Impression | None = None,
    ) -> Decision:
        """judged: what versions are judged by; a list that is learned from and no record holds is not."""
        holdout: tuple[OutRecord, ...] = ()
        try:
            if judged is not None:  # placed by its key: the holdout of a broker has other partitions, maybe
                holdout = (OutRecord(encode_impression(judged), key),)
        except Poison:  # its triplets are smaller
            if fate == "holdout":
                raise
        self._cap.add(scoped(key, item.key))
        return Decision(fate, training=self._event_records(made, key), holdout=holdout, made=made, ts=item.ts)

    def _event_records(self, made: Made, key: bytes) -> tuple[OutRecord, ...]:
        # The log says when they came: to its retention an old click is as new as any other, and learners
        # bound event times by it.
        partition = partition_of(key, self._settings.partitions)
        return tuple(OutRecord(encode_event(event), key, partition) for event in made.events)

    def _bet_on(self, impression: Impression) -> Impression | None:
        """A list that is learned from, for the versions before it to be judged by.

        Whether a version has learned from it is told by its time, the same whenever it is fed again.
        """
        settings = self._settings
        is_usable = len(impression.clicked) < len(impression.shown)
        if not settings.prequential or not is_usable or impression.ts == settings.untimed_ms:
            return None
        return replace(impression, trained=True, for_arms=False, kind=None)

    def _is_holdout(self, key: bytes, name: str, share: float = 1.0) -> bool:
        """Whether a list is held out, and among that share of the queries, or of the lists."""
        if self._settings.holdout_by == "list":
            key = name.encode()
        return is_holdout(key, min(share, self._settings.holdout_share), self._settings.seed)

    def _kind_of(self, query: ObjectRef) -> str | None:
        return None if self._kinds is None else self._kinds.of(query)

    def _is_unknown(self, ref: ObjectRef) -> bool:
        return self._known is not None and ref.features() is None and ref.id not in self._known

    def _unknown_ranks(self, impression: Impression) -> frozenset[int]:
        if self._known is None:
            return frozenset()
        return frozenset(rank for rank, ref in enumerate(impression.shown) if self._is_unknown(ref))

    def _names_space(self, given: str | None, *refs: ObjectRef) -> bool:
        """Whether to write the space of the settings: none is given, and an object brings features."""
        return bool(self._settings.space) and given is None and any(ref.features() for ref in refs)


def check_texts(item: Event | Impression | UnclickedList) -> None:
    """Refuse what no record can hold, before anything is remembered or drawn of it. Raises Poison or
    UnicodeEncodeError."""
    if isinstance(item, UnclickedList):
        texts = [item.id, item.query, *item.shown]
    else:
        refs = (item.clicked, item.skipped) if isinstance(item, Event) else item.shown
        texts = [item.id, *[ref.id for ref in (item.query, *refs) if ref.id is not None]]
    texts += [text for text in (item.key, item.source) if text is not None]
    if not isinstance(item, Event) and len(item.shown) > MAX_SHOWN:
        raise Poison(TOO_LARGE, f"{len(item.shown):,} objects shown, the limit is {MAX_SHOWN:,}")
    "".join(texts).encode()
    if "" in texts:
        raise Poison(OUT_OF_RANGE, "an id is empty")
    if max(map(len, texts)) > MAX_TEXT_BYTES // 4 and not all(map(_fits, texts)):
        raise Poison(TOO_LARGE, f"a text of more than {MAX_TEXT_BYTES} bytes")


def _fits(name: str) -> bool:
    try:
        return 0 < len(name.encode()) <= MAX_TEXT_BYTES
    except UnicodeEncodeError:
        return False


def hashable(value: Any) -> Any:
    """What was a tuple before it was packed."""
    return tuple(hashable(one) for one in value) if isinstance(value, list) else value


def refused(error: Exception) -> Decision:
    """The fate of a list that one of `REFUSALS` was raised for."""
    if isinstance(error, BadSignature):
        return _drop(reasons.BAD_SIGNATURE, str(error))
    if isinstance(error, UnicodeEncodeError):
        return _drop(reasons.NOT_UTF8, "an id holds half of a surrogate pair")
    if not isinstance(error, Poison):
        raise error
    malformed = "" if error.reason == reasons.IN_THE_FUTURE else reasons.MALFORMED
    return _drop(malformed + error.reason, error.detail)


def _drop(reason: str, detail: str) -> Decision:
    return Decision("dropped", reason, detail)


def _no_click(shown: int) -> Decision:
    return _drop(reasons.NO_CLICK, f"{shown} shown")


def _unknown(field: str, ref: ObjectRef) -> Decision:
    return _drop(reasons.UNKNOWN_OBJECT, f"{field} {_name(ref)} is not in the catalog")


def _name(ref: ObjectRef) -> str:
    return repr(ref.id[:80]) if ref.id else "without id"
