"""Mutations of `streams`: limits of the wire, reasons, known ids, the embedded log, feeding, steps, Kafka."""

# fmt: off
# ruff: noqa: E501  (one mutation, one line)

from __future__ import annotations

from tests.mutations.mutation import Mutation
from tests.mutations.mutation import mutation as made

CODEC = "streams/test_codec.py streams/test_format_vectors.py"
DECODER = "streams/test_batch_decoder.py streams/test_compiled_decoder.py"
VECTORS = "streams/test_format_vectors.py"
DEDUPE = "streams/test_dedupe.py"
RULES = "streams/feed/test_feed_rules.py"
PIPELINE = "streams/feed/test_feed_pipeline.py"
PREQUENTIAL = "streams/feed/test_feed_prequential.py"
NEGATIVES = "streams/feed/test_feed_negatives.py"
CAP, BOTH = "streams/feed/test_feed_pair_cap.py", "streams/feed/test_feed_both_sides.py"
MAPPED = "streams/feed/test_feed_mapping.py"
PATHS = "streams/feed/test_feed_paths.py"
READING = "streams/contract/test_reading_contract.py -k 'not kafka'"
WRITING = "streams/contract/test_writing_contract.py -k 'not kafka'"
STEPS = "streams/steps/test_codec.py streams/steps/test_step_vectors.py"
ITEMS = "streams/test_items.py"
RELEVANCE = "streams/test_relevance.py"
SHARED = "streams/test_shared_labels.py"
PARTS = "streams/kafka/test_kafka_parts.py"


def _m(name: str, mark: str, old: str, new: str, tests: str, *more: tuple[str, str, str]) -> Mutation:
    return made(f"streams.{name}", "streams", mark, old, new, tests, *more)


HELD = "daemon/learn/test_threads.py daemon/validate/test_holdout.py"

OPEN_TRANSACTIONS = (
    _m("transactions.since-forgotten", "def next(self, held", "since[partition] = self.since[partition]", "pass", HELD),
    _m("transactions.another-one", "def next(self, held", "and known.first == found.first", "", HELD),
    _m("transactions.not-reached-yet", "def reached(self, positions", "if positions.get(partition, 0) >= held.first:", "if True:", HELD),
    _m("transactions.at-once", "def trouble(self, topic", "if seconds > after_s:", "if True:", HELD),
)

WIRE = (
    _m("wire.value-limit", "def unpack(value", "if len(value) > max_bytes:", "if len(value) > 2 * max_bytes:", CODEC),
    _m("wire.list-limit", "def read_event(value", "max_list=2", "max_list=3", CODEC),
    _m("wire.trailing-bytes", "def unpack(value", "raise Poison(poison.TRAILING_BYTES, _if_json(value))", "raise Poison(poison.NOT_MSGPACK)", CODEC),
    _m("wire.too-large-reason", "def unpack(value", "poison.TOO_LARGE if \"exceeds max_\" in", "poison.TOO_LARGE if \"exceeded\" in", CODEC),
    _m("wire.duplicate-key", "def open_map(", "if len(fields) != len(raw):", "if len(fields) > len(raw):", CODEC),
    _m("wire.unknown-field", "def _check_head(", "if len(fields) > len(required) and not known.issuperset(fields):", "if False:", CODEC),
    _m("wire.version", "def check_version(", "if version not in known:", "if version > max(known):", CODEC),
    _m("wire.version-bool", "def check_version(", "type(version) is not int", "not isinstance(version, int)", CODEC),
    _m("wire.ts-below-0", "def check_ts(", "0 <= raw <= MAX_TS", "raw <= MAX_TS", CODEC),
    _m("wire.ts-above", "def check_ts(", "raw <= MAX_TS", "raw <= MAX_TS + 1", CODEC),
    _m("wire.key-length", "def check_key(", "> MAX_KEY_BYTES", "> MAX_KEY_BYTES + 1", CODEC),
    _m("wire.key-nul", "def check_key(", "if \"\\0\" in raw:", "if raw == \"\\0\":", CODEC),
    _m("wire.weight-0", "def check_number(", "0 < raw <= high", "0 <= raw <= high", CODEC),
    _m("wire.clicked-ascends", "def check_clicked(", "if not last < rank < shown:", "if not last <= rank < shown:", CODEC),
    _m("wire.clicked-within", "def check_clicked(", "if not last < rank < shown:", "if not last < rank <= shown:", CODEC),
    _m("wire.prop-length", "def check_propensity(", "if len(raw) != shown:", "if len(raw) > shown:", CODEC),
    _m("wire.x-and-views", "def read_object(", "if (\"x\" in fields) == (\"views\" in fields):", "if \"x\" not in fields and \"views\" not in fields:", CODEC),
    _m("wire.half-float", "def _read_vector(", "if not raw or len(raw) & 3:", "if not raw or len(raw) & 1:", CODEC),
    _m("wire.sparse-lengths", "def _read_vector(", "if len(indices) != len(values) or len(indices) & 3:", "if len(indices) & 3:", CODEC + " " + DECODER),
    _m("encode.weight-of-1", "def encode_event(", "if event.weight != 1.0:", "if event.weight > 1.0:", CODEC),
    _m("encode.keyed-version", "def _version_of(key", "wire.FORMAT_VERSION if key is None else wire.KEYED_VERSION", "wire.FORMAT_VERSION", CODEC,
       ("def _version_of(key", "limits.FORMAT_VERSION if key is None else limits.KEYED_VERSION", "limits.FORMAT_VERSION")),
    _m("decode.next-offset", "refused,\n            batch.offsets[-1] + 1,\n            sha256(batch.values[-1] or b\"\").digest(),\n            found.keys", "batch.offsets[-1] + 1", "batch.offsets[-1]", DECODER,
       ("found = self._reading.find(values, self._max_bytes", "batch.offsets[-1] + 1", "batch.offsets[-1]")),
    _m("decode.offsets-of-refused", "found = self._reading.find(values, self._max_bytes", "offsets[found.records] if refused else offsets", "offsets[: len(found.records)] if refused else offsets", DECODER),
    _m("decode.damaged-read", "def refuse_unread(batch", "if batch.damaged is not None:", "if batch.damaged == \"\":", DECODER + " streams/kafka/test_kafka_damage.py -k 'not confluent'"),
    _m("decode.future-by-the-record", "def too_late(", "self._ms[places] + max_future_ms", "self._ms[places]", DECODER),
    _m("decode.no-arrival-said", "class Arrivals", "(times >= FIRST_BELIEVED_MS) & (times <= LAST_BELIEVED_MS)", "(times >= FIRST_BELIEVED_MS)", DECODER),
    _m("decode.no-later-than-arrival", "def believed(", "np.minimum(ts, self._ms[places])", "ts", DECODER),
    _m("decode.digest-of-first", "found = self._reading.find(values, self._max_bytes", "sha256(batch.values[-1] or b\"\")", "sha256(batch.values[0] or b\"\")", DECODER),
)

IDS = (
    _m("ids.window-one-long", "def admit(ids", "if admitted >= len(ring):", "if admitted > len(ring):", DEDUPE),
    _m("ids.zero-is-empty", "def kept(identifier", "STANDS_FOR_ZERO if identifier == EMPTY else identifier", "identifier", DEDUPE),
    _m("ids.restored-count", "def from_arrays(cls, capacity", "window._admitted = admitted", "window._admitted = len(ids)", DEDUPE),
    _m("ids.twice-passes", "def fill(ids", "and table[slot] == EMPTY", "", DEDUPE),
    _m("ids.altered-passes", "def _checked(capacity", "admitted < 0 or len(ids) != min(admitted, capacity)", "admitted < 0", DEDUPE),
)

LOG = (
    _m("place.route", "partition = record.partition\n", "0 if record.key is None else", "0 if record.key is not None else", WRITING),
    _m("place.record-limit", "def place_records(", "if size > MAX_RECORD_BYTES:", "if size > MAX_RECORD_BYTES + 1:", WRITING),
    _m("place.expired", "def check_positions(", "if position < earliest:", "if False:", READING),
    _m("place.ahead", "def check_positions(", "if position > end:", "if position > end + 1:", READING),
    _m("log.position-advances", "del self._positions[partition]", "self._positions[partition] = rows[-1][0] + 1", "self._positions[partition] = position + len(rows)", "streams/log/test_compacting.py"),
    _m("log.starves-a-partition", "self.bounds()[partition][0] > position:", "del self._positions[partition]", "pass", READING),
    _m("log.offsets-at", "def _offset_at(self", "ts >= ?", "ts > ?", READING),
    _m("log.high-falls", "def _append(self", "high = max(high, ts)", "high = ts", READING),
    _m("log.time-to-come", "class LogSink(", "min(record.timestamp, now)", "record.timestamp", READING),
    _m("log.retains-one-more", "removed = 0\n    while True:", "WHERE offset < ?", "WHERE offset <= ?", WRITING),
)

FEED = (
    _m("rule.skip-above", "def skip_above(", "for s in range(c) if", "for s in range(1, c) if", RULES),
    _m("rule.last-click", "def last_click(", "last = clicked[-1]", "last = clicked[0]", RULES),
    _m("rule.skip-next", "def skip_next(", "and c + 1 not in hits", "", RULES),
    _m("rule.all-skipped", "def all_skipped(", "if s not in hits", "if s != c", RULES),
    _m("feed.seen-before-fate", "def _first(self", "self._seen.add(name)", "pass", PIPELINE),
    _m("feed.key-not-in-identity", "def scoped(", "name if key is None else (key, name)", "name", PIPELINE),
    _m("feed.all-clicked", "def _to_holdout(", "len(impression.clicked) == len(impression.shown)", "len(impression.clicked) > len(impression.shown)", PIPELINE),
    _m("feed.unknown-click", "unknown = self._unknown_ranks(", "unknown.issuperset(impression.clicked)", "unknown.intersection(impression.clicked)", PIPELINE),
    _m("feed.pair-cap", "def sampled(pairs", "frozenset(ordered[:cap])", "frozenset(ordered[: cap + 1])", CAP),
    _m("feed.capped-order", "def sampled(pairs", "for pair in pairs if pair in few", "for pair in few", CAP),
    _m("feed.cap-above", "def sampled(pairs", "== PAIR_ABOVE][:cap])", "== PAIR_ABOVE][: cap + 1])", BOTH),
    _m("feed.both-sides", "def sampled(pairs", "frozenset(ordered[: 2 * cap])", "frozenset(ordered[:cap]) | above", BOTH),
    _m("feed.for-arms", "def _to_holdout(", "event.pair | ONLY_ARMS", "event.pair", PREQUENTIAL),
    _m("feed.apart", "def _to_holdout(", "kind is not None or self._is_holdout(key, impression.id, LEAST_APART)", "kind is not None", PREQUENTIAL),
    _m("feed.negative-is-clicked", "def _negatives(", "(impression.query, *clicked_objects)", "(impression.query,)", NEGATIVES),
    _m("feed.negatives-never-fall", "def weight_of_drawn(", "math.sqrt(self.negative_falls_from / (fed + 1))", "1.0", NEGATIVES),
    _m("feed.negatives-fall-for-ever", "def weight_of_drawn(", "max(LEAST_SHARE, ", "max(0.0, ", NEGATIVES),
    _m("feed.negatives-count-nothing", "def decide(self", "self.fed += decision.made.for_above", "pass", NEGATIVES),
    _m("feed.negative-seed", "def draw(candidates", "salt = _salt(seed)", "salt = _salt(0)", NEGATIVES),
    _m("feed.holdout-order", "def as_impression(", "shown=(event.clicked, event.skipped) if below else (event.skipped, event.clicked)", "shown=(event.clicked, event.skipped)", PIPELINE),
    _m("feed.untimed-is-marked", "def _bet_on(", " or impression.ts == settings.untimed_ms", "", PREQUENTIAL),
    _m("feed.triplets-first", "class SinkOutlet:", "if holdout:\n            self._holdout.send(holdout)\n        if training:\n            self._training.send(training)", "if training:\n            self._training.send(training)\n        if holdout:\n            self._holdout.send(holdout)", PREQUENTIAL),
    _m("feed.without-ranks", "def without(impression", "place[rank] for rank in impression.clicked if rank in place", "rank for rank in impression.clicked if rank in place", PIPELINE),
    _m("labels.partner-by-labels-in-common", "def _partners(", "rng.random(len(waiting)) * self._in_common(wanted, drawn) < 1.0", "True", SHARED),
    _m("labels.own-partner", "def _partners(", "drawn != wanted", "drawn >= 0", SHARED),
    _m("labels.rest", "def _rest(", "== 0", "<= 1", SHARED),
    _m("labels.own-mass", "def draw_by_relevance(", "np.where(at >= ends[picked], table.data[picked], 0.0)", "0.0", SHARED),
    _m("relevance.theta", "def _kept(piece", "coo.data > above", "coo.data >= above", RELEVANCE),
    _m("relevance.own-object", "def _row_blocks(", "(piece.row + start) != piece.col", "piece.row != piece.col", RELEVANCE),
)

MAPPING = (
    _m("mapping.click-too-late", "def _may_have(self", "0 <= click.ts - one.said.ts <= self._within_ms", "0 <= click.ts - one.said.ts", MAPPED),
    _m("mapping.click-of-first", "def _best(self, click: WaitingClick", "max(fits, key=lambda one: one.said.ts, default=None)", "fits[0] if fits else None", MAPPED),
    _m("mapping.closed-while-pieces-come", "class JoinWindow:", "self._open.move_to_end(name)", "pass", MAPPED),
    _m("mapping.order-of-file", "def item(self, refs", "sorted(range(len(objects)), key=places.__getitem__)", "list(range(len(objects)))", MAPPED),
    _m("mapping.clicks-before-lists", "class JoinedEvents(", "sorted(moves, key=itemgetter(0))", "moves", MAPPED),
    _m("mapping.file-after-file", "def _side_by_side(", "(_begin(rows, mapping), number, rows, batches)", "(0, number, rows, batches)", MAPPED),
    _m("mapping.last-of-key", "def _by_key(", "chosen[row_of[at][::-1]] = at[::-1]", "chosen[row_of[at]] = at", PATHS),
    _m("mapping.always-first", "def _in_list(", "ends - sizes + step.at", "ends - sizes", PATHS),
)

MORE = (
    _m("steps.chain-not-checked", "def decode_segment(", "if link(before, head, payload) != after:", "if False:", STEPS),
    _m("steps.link-order", "def link(before", "digest.update(head)\n    digest.update(payload)", "digest.update(payload)\n    digest.update(head)", STEPS),
    _m("steps.part-lost", "def _join(self", "part.part != len(self._parts)", "part.part < len(self._parts)", STEPS),
    _m("steps.other-segment", "def _join(self", "or first != replace(part, part=first.part, data=first.data)", "", STEPS),
    _m("steps.back-in-time", "def _taken(fields", "if last < first:", "if last + 1 < first:", STEPS),
    _m("steps.index-outside", "def _rows(cursor", "indices.max() >= layout.dim", "indices.max() > layout.dim", STEPS),
    _m("steps.payload-length", "def unpack(layout", "if len(payload) != layout.size:", "if len(payload) < layout.size:", STEPS),
    _m("items.key-of-record", "def read_item(", "if key != fields[\"id\"].encode():", "if key is None:", ITEMS),
    _m("items.tag-twice", "def check_display(", "len(set(display.tags)) != len(display.tags)", "len(display.tags) < 0", ITEMS),
    _m("items.removal-fields", "if fields[\"op\"] == \"remove\":", "if len(fields) > len(_HEAD):", "if len(fields) > len(_HEAD) + 1:", ITEMS),
    _m("kafka.gap-not-reached", "for partition, reached in self._fetched.items():", "if partition not in self._waiting:", "if partition in self._waiting:", "streams/kafka/test_kafka_reading.py -x"),
    _m("catalog.refused-not-finite", "def check_vector(", "np.isfinite(", "np.isreal(", CODEC + " streams/test_catalog.py"),
)

MUTATIONS = (*OPEN_TRANSACTIONS, *WIRE, *IDS, *LOG, *FEED, *MAPPING, *MORE)
