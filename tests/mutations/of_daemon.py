"""Mutations of `daemon`: cadence, halts, poison, progress, the step log, following, serving, judging, models,
supervision, configuration, exit codes, limits of HTTP.
"""

# fmt: off
# ruff: noqa: E501  (one mutation, one line)

from __future__ import annotations

from tests.mutations.mutation import Mutation
from tests.mutations.mutation import mutation as made

CADENCE = "daemon/learn/test_cadence.py"
PUBLISHING = "daemon/learn/test_publishing.py"
PAUSE = "daemon/learn/test_pause.py"
PROGRESS = "daemon/learn/test_progress.py"
CONTROLS = "daemon/learn/test_controls.py"
CONTINUING = "daemon/learn/resume/test_continuing.py"
JOURNAL = "daemon/learn/steplog/test_journal.py"
LIMITS = "daemon/learn/steplog/test_limits.py"
THREADS = "daemon/learn/test_reader.py daemon/learn/test_threads.py"
CHOOSE = "daemon/replica/test_choose.py"
LINE = "daemon/replica/test_line.py"
SIDES = "daemon/replica/test_sides.py"
FINDING = "daemon/serve/retrieve/test_finding.py"
GUARD = "daemon/serve/retrieve/test_guard.py"
MERGING = "daemon/serve/items/test_index_model.py daemon/serve/items/test_catalog.py"
FRESHNESS = "daemon/serve/test_freshness.py"
WATCHER = "daemon/serve/test_watcher.py"
HOSTS = "daemon/serve/http/test_hosts.py"
BATCHING = "daemon/serve/http/test_batching.py"
ADMIN = "daemon/serve/http/test_admin.py"
SIMILAR = "daemon/serve/http/test_similar.py daemon/serve/http/test_refusals.py"
DECIDE = "daemon/validate/test_decide.py"
IN_ORDER = "daemon/validate/test_in_order.py"
RULES = "daemon/validate/test_rules.py"
HISTORY = "daemon/validate/test_history.py"
MEASURES = "daemon/validate/test_measures.py"
EVIDENCE = "daemon/validate/test_evidence.py"
INTERLEAVED = "daemon/validate/test_interleaved.py"
BEST = "daemon/validate/test_best.py"
PREQUENTIAL = "daemon/validate/test_prequential.py"
MAKERS = "daemon/validate/test_makers.py"
PREFERENCES = "daemon/validate/test_preferences.py"
CHOOSING = "daemon/validate/test_choosing.py"
RACE = "daemon/validate/test_race.py"
SOURCES = "daemon/validate/test_sources.py -k count"
VERDICT = "daemon/versions/test_verdict.py"
ORDER = "daemon/versions/test_order.py"
FORMS = "daemon/test_form_by_clicks.py"
MODELS = "daemon/models/test_decide.py"
SUPERVISE = "daemon/test_supervise.py"
CONFIG = "daemon/test_config.py"


def _m(name: str, mark: str, old: str, new: str, tests: str, *more: tuple[str, str, str]) -> Mutation:
    return made(f"daemon.{name}", "daemon", mark, old, new, tests, *more)


LEARN = (
    _m("cadence.events-again", "def due(self", "and records != records_at_last", "", CADENCE),
    _m("cadence.unmoved", "def due(self", "return moved and bool(self.every_s)", "return bool(self.every_s)", CADENCE),
    _m("cadence.late", "def due(self", "seconds_since >= self.every_s", "seconds_since > self.every_s", CADENCE),
    _m("cadence.poll-limit", "def left(", "self.every_events - records % self.every_events", "self.every_events", CADENCE + " daemon/learn/test_role.py"),
    _m("publishing.asked-forgotten", "def tick(self, asked", "(self._asked or asked) and", "asked and", PUBLISHING),
    _m("publishing.by-count-left-out", "def tick(self, asked", "while self.busy:", "while False:", PUBLISHING),
    _m("publishing.two-in-flight", "def _begin(self) -> bool", "if self._in_flight is not None:", "if False:", PUBLISHING),
    _m("publishing.gives-up-early", "def finish(self) -> None", "attempts < FINAL_ATTEMPTS", "attempts < 0", PUBLISHING),
    _m("publishing.parent-stays", "def _take(self, result", "self.parent = result.manifest.number", "pass", PUBLISHING),
    _m("pause.at-the-limit", "def too_much(", "self.share <= self._limit", "self.share < self._limit", PAUSE + " daemon/learn/test_halts.py"),
    _m("pause.before-the-window", "def too_much(", "self._records < self.window or", "", PAUSE + " daemon/learn/test_halts.py"),
    _m("pause.window-does-not-slide", "def count(self, records", "self._dead -= old_dead - dead_kept", "pass", PAUSE + " daemon/learn/test_halts.py"),
    _m("pause.forgives-nothing", "def forgives(self", "at < self._forgiven.get(partition, 0)", "at < 0", PAUSE + " daemon/learn/test_halts.py"),
    _m("pause.written-again", "why = self._gate.too_much()", "if why is not None and self._pause is None:", "if why is not None:", PAUSE + " daemon/learn/test_halts.py"),
    _m("pause.resume-forgives", "for entry in filter(is_pause, entries)", "self._gate.forgive(_positions_of(self._pause, self._topic_id))", "pass", PAUSE + " daemon/learn/test_halts.py"),
    _m("progress.backwards", "def advance(self", "if applied.next_offset <= start:", "if applied.next_offset < start:", PROGRESS),
    _m("progress.watermark-falls", "def advance(self", "max(self.watermark, applied.newest_ts)", "applied.newest_ts", PROGRESS),
    _m("progress.sealed-run-grows", "def snapshot(self)", "self._sealed = len(self._entries)", "pass", PROGRESS),
    _m("progress.published-keeps", "def published(self, snapshot: Snapshot)", "del self._entries[: len(snapshot.entries)]", "self._entries.clear()", PROGRESS),
    _m("progress.runs-not-joined", "def _append_run(", "last[2] == start", "last[2] == stop", PROGRESS),
    _m("controls.gap-from", "def gap(partition", "\"from\": wanted, \"to\": earliest", "\"from\": earliest, \"to\": wanted", CONTROLS + " daemon/learn/test_progress.py daemon/learn/replay/test_expired.py"),
    _m("controls.repeats", "def repeats(", "int(offset) < int(entry[\"from\"][partition])", "int(offset) > int(entry[\"from\"][partition])", "daemon/learn"),
    _m("continuing.past-the-end", "def refuse_past_the_end(", "if position.next_offset > end:", "if position.next_offset > end + 1:", CONTINUING),
    _m("continuing.altered-record", "def refuse_altered_record(", "if found == position.last_digest:", "if found is not None:", CONTINUING),
    _m("continuing.gap", "def find_gaps(", "if position.next_offset < bounds[p][0]", "if position.next_offset + 1 < bounds[p][0]", CONTINUING),
    _m("continuing.gap-accepted", "def find_gaps(", "if gaps and not accept:", "if False:", CONTINUING),
    _m("poll.grows-too-fast", "def polled(self", "self._by_bytes * 4", "self._by_bytes", THREADS),
    _m("poll.time", "def learned(self, records", "int(records * BATCH_SECONDS / max(seconds, 1e-9))", "int(records * max(seconds, 1e-9) / BATCH_SECONDS)", THREADS),
    _m("reader.reached-while-waiting", "def reached(self)", "if queued == self._taken else None", "", THREADS + " daemon/learn/test_caught_up.py"),
    _m("letters.not-cut", "most = max(0, max_record_bytes - ROOM_FOR_HEADERS)", "len(letter.value) <= most", "len(letter.value) >= 0", "daemon/test_deadletters.py"),
    _m("letters.not-again", "def send_durably(", "if wait(RETRY_SECONDS, error):\n                return False", "return True", "daemon/test_deadletters.py",
       ("def send_durably(", "except StreamUnavailable:\n        return False", "except StreamUnavailable:\n        return True")),
    _m("sink.gives-up-early", "def give_up(error", "now - began >= GIVE_UP_SECONDS", "now - began >= 0", "daemon/test_retries.py"),
    _m("counts.newest-of-rejected", "def newest_ts(", "self.rows[self.info.outcome != Outcome.REJECTED]", "self.rows", "daemon/learn"),
)

STEP_LOG = (
    _m("allowance.no-limit", "if size > self._held and", "self._held < full", "self._held < 0", LIMITS),
    _m("allowance.saves-for-ever", "full = self._rate * BURST_SECONDS", "min(full, self._held + ", "(self._held + ", "daemon/learn/steplog"),
    _m("allowance.versions", "def version(self) -> None", "self._taken = 0", "pass", LIMITS + " " + JOURNAL),
    _m("floor.newest-base", "def offset(self) -> int", "self._bases[0] if", "self._bases[-1] if", LIMITS + " daemon/learn/steplog"),
    _m("journal.hole-unseen", "def _applied(self", "if batch.first != self._records:", "if batch.first < self._records:", JOURNAL),
    _m("journal.cut-lost", "def _captured(self", "self._pending[-1] = replace(self._pending[-1], cut=True)", "pass", JOURNAL),
    _m("journal.seq", "def _write(self, body: Body) -> Written", "seq=place.seq + 1", "seq=place.seq", JOURNAL),
    _m("journal.projection-not-last", "written = self.flush() if full or", "if steps.project else written", "if False else written", JOURNAL + " daemon/learn/steplog/test_step_log.py"),
    _m("line.gap-unseen", "def hear(self", "if place.seq != at.place.seq + 1:", "if place.seq < at.place.seq + 1:", LINE),
    _m("line.chain-unseen", "def hear(self", "if segment.before != at.chain:", "if False:", "daemon/replica"),
    _m("line.twice", "def hear(self", "if place.seq <= at.place.seq:", "if place.seq < at.place.seq:", LINE),
    _m("line.digest", "def _compare(self", "self._relabel(base) if mine.digest == base.digest else", "self._relabel(base) if True else", LINE),
    _m("line.older-writer", "def _another_writer(", "segment.place.epoch <= self._at.place.epoch or", "", LINE),
    _m("line.records", "return self._compare(body)", "if body.first != self.records:", "if body.first < self.records:", LINE),
    _m("line.whole", "if body.last > body.first:", "self.whole = False", "self.whole = True", LINE),
    _m("line.highest-epoch", "def begin(self, version: int", "key=lambda cut: cut.place.epoch", "key=lambda cut: -cut.place.epoch", LINE),
)

LOST_FOLDER = (
    _m("folder.judged-into-nothing", "def judge_next(self)", "if is_away(self._inputs.versions.store): # it went", "if False: # it went", "daemon/validate/test_validator.py"),
    _m("folder.metric-stays", "def record(self, now: str, losses", "self._lost[how].set(how == now)", "self._lost[how].set(bool(now))", "daemon/test_telemetry.py"),
)

REPLICA_AND_SERVE = (
    _m("choose.barred", "def choose(name", "if number in seen.barred:", "if False:", CHOOSE),
    _m("choose.goes-back", "def choose(name", "if number > served.number or entry > served.entry:", "if number != served.number:", CHOOSE),
    _m("choose.same-entry", "def choose(name", "entry > served.entry", "entry >= served.entry", CHOOSE),
    _m("choose.awaited", "def choose(name", "if number > served.number and awaited:", "if False:", CHOOSE),
    _m("choose.latest-order", "def _candidates(", "reverse=True", "reverse=False", CHOOSE),
    _m("vectors.norm-of-query", "def _folded(self, view", "inverse_roots(view.self_scores(mapped))[:, None]", "np.float32(1)", "daemon/client/test_client.py -k vectors"),
    _m("vectors.between-versions", "def _refuse(view", "view.model.behind or isinstance(learned_of(view.form), CarriedForm)", "False", "daemon/client/test_client.py -k vectors"),
    _m("choose.earlier-order", "def _earlier(", "reverse=True", "reverse=False", "daemon/replica/test_choose.py daemon/replica"),
    _m("refusals.wait-doubles", "case.wait_s = min(", "2 * case.wait_s", "case.wait_s", "daemon/replica/test_replica_refusals.py"),
    _m("sides.flip-under-readers", "def flip(self) -> None", "if self._readers[1 - self._active]:", "if False:", SIDES),
    _m("sides.drain-other", "def drain(self", "not self._readers[1 - self._active]", "not self._readers[self._active]", SIDES),
    _m("refine.rest", "def rest(spent_s", "spent_s / share - elapsed_s", "spent_s / share", "daemon/replica"),
    _m("desk.steps-not-owed", "def flip_steps(", "self._owed, self._taken = self._taken, []", "self._taken = []", "daemon/replica/test_replica_steps.py"),
    _m("merge.too-large", "def choose(parts", "total + one.living > sizes.part or", "", MERGING),
    _m("merge.half-dead", "def choose(parts", "one.dead >= 0.5", "one.dead >= 1.5", MERGING),
    _m("merge.tags-moved", "places = np.full(len(part), -1, np.int32)", "np.arange(at, at + len(rows)", "np.arange(0, len(rows)", MERGING),
    _m("find.own-id", "def _room(query", "(query.id is not None) +", "", FINDING),
    _m("find.few", "def scans_of(", "len(query.exclude) > FEW", "len(query.exclude) < 0", FINDING),
    _m("find.dead-rows", "def find_many(", "here &= part.alive[rows]", "pass", MERGING + " " + FINDING),
    _m("guard.no-error", "def choose_width(", "if recall - error >= least:", "if recall + error >= least:", GUARD),
    _m("guard.width", "def choose_width(", "width += (1 <<", "width += 64 * (1 <<", GUARD),
    _m("graphs.runs", "def labels_of(self, hashes", "self._run(hashes, left) if there.all() else None", "None", "daemon/serve/retrieve/test_graphs.py"),
    _m("swap.no-catch-up", "self, number: int, answers: Answering, catch_up", "if catch_up is not None and active.view is not None:", "if False:", "daemon/learn/test_shards.py -k never_lose"),
    _m("swap.catch-up-stands", "def stand_at(self, model", "replace(self.view, model=model)", "self.view", "daemon/learn/test_shards.py -k never_lose"),
    _m("guard.own-row", "def recall(exact", "- {int(self_row)}", "", GUARD),
    _m("freshness.version-not-told", "def _hear_version(", "events - counted.events", "0", WATCHER),
    _m("freshness.told-twice", "def _hear(", "or not counted.whole", "or True", WATCHER),
    _m("fresh.begin", "def begin(self, total: int)", "if group[0] > total", "if group[0] >= total", FRESHNESS),
    _m("fresh.answered", "def answered(self, total", "if at <= total", "if at < total", FRESHNESS),
    _m("fresh.future", "def of(cls, times", "np.minimum(times, now_ms)", "times", FRESHNESS),
    _m("tags.any", "def bearing(self", "mask &= one", "mask |= one", "daemon/serve/items daemon/serve/retrieve/test_finding.py"),
)

HTTP = (
    _m("http.parameter-twice", "def _from_parameters(", "if count > 1:", "if count > 2:", SIMILAR, ("def of_address(", "if count > 1:", "if count > 2:")),
    _m("http.unknown-parameter", "def _from_parameters(", "if name not in (\"id\", \"k\", \"key\", \"alias\"):", "if False:", SIMILAR, ("def of_address(", "if name not in known:", "if False:")),
    _m("http.status-of-bug", "def _bug(self", "500, \"bug\"", "400, \"bug\"", "daemon/serve/http"),
    _m("http.bug-not-counted", "def _bug(self", "self._metrics.bugs.inc()", "pass", "daemon/serve/http"),
    _m("http.aside-slot-free", "def _start(self, function", "self._turn.release()", "pass", "daemon/serve/http/test_aside.py"),
    _m("http.aside-no-limit", "", "async with asyncio.timeout(self._patience_s):", "async with asyncio.timeout(None):", "daemon/serve/http/test_aside.py", ("", "async with asyncio.timeout(self._timeout_s):", "async with asyncio.timeout(None):")),
    _m("http.k-max", "", "if question.k > limits.k_max:", "if question.k > limits.k_max + 1:", SIMILAR),
    _m("http.queue", "", "self._count + len(job.queries) > self._limits.queue", "self._count + len(job.queries) > self._limits.queue + 1", BATCHING),
    _m("auth.compare", "", "if hmac.compare_digest(digest, one.digest):", "if digest[:0] == one.digest[:0]:", ADMIN),
    _m("hosts.status", "", "421, \"unknown_host\"", "403, \"unknown_host\"", HOSTS),
)

VALIDATE = (
    _m("decide.best-is-last", "def _after(entry", "entry.version if entry.beats else best", "entry.version", DECIDE),
    _m("decide.patience", "def is_over(", "self.idle >= max(", "self.idle > max(", DECIDE),
    _m("decide.min-versions", "def is_over(", "self.counted >= rule.min_versions", "self.counted > rule.min_versions", DECIDE),
    _m("decide.not-enough-counts", "def patience_of(", "if not entry.decided:", "if False:", DECIDE),
    _m("evidence.worse-than-the-anchor", "def weigh(", "found == \"inferior\" or", "", EVIDENCE),
    _m("evidence.patience", "def decided(self) -> bool", "self.found != \"not yet\" or", "", EVIDENCE),
    _m("evidence.next-proof", "def alpha(self, rule", "/ 2**self.falls", "", EVIDENCE),
    _m("evidence.teams-turned", "def outcomes(", "1 if later is second else -1", "1", INTERLEAVED),
    _m("evidence.what-came-before", "def outcomes(", "later[1] > reference[1]", "later != reference", INTERLEAVED),
    _m("evidence.by-order-alone", "def compare(", "np.where(np.isnan(teams), ordered, teams)", "ordered", BEST + " -k two_versions"),
    _m("evidence.own-lists", "def told_by_order(", "or are_nearer(own[where], other[where], lists.at(where))", "", MAKERS),
    _m("evidence.lead", "def weigh(", "lead=standing.lead.take(seen.fresh_lead, rule.horizon)", "lead=standing.lead", MAKERS),
    _m("evidence.ranks-prefer", "def differences(", "weights * apart", "apart", PREFERENCES),
    _m("evidence.usual", "def differences(", " - usual[pairs.clicked, pairs.other]", "", PREFERENCES),
    _m("evidence.before", "def _before(", "np.where(upper, clicks_below, clicks_above)", "np.where(upper, clicks_above, clicks_below)", PREFERENCES),
    _m("evidence.earlier-parts", "def _balanced(", "seen += pairs.by_ranks(share)", "pass", PREFERENCES),
    _m("evidence.not-cut", "def credit(", "weights * pairs", "2 * weights * pairs", PREFERENCES),
    _m("evidence.queries", "def bets_of(", "sums / np.sqrt(counts)", "sums", PREFERENCES),
    _m("sources.none-decides", "def counted_lists(", "[most:]] = False", "[most:]] = True", SOURCES),
    _m("sources.by-ids", "def counted_lists(", "key=lambda place: stable_order(impressions[place].id)", "key=None", SOURCES),
    _m("sources.share", "class SourceShare", "LARGE_SHARE < self.share < 1", "0 < self.share < 1", VERDICT),
    _m("sources.balance", "def compare(", "only_counted(panel.by_time, counted)", "panel.by_time", SOURCES),
    _m("sources.teams", "def compare(", "where & counted, values", "where, values", SOURCES),
    _m("sources.order", "def order_bets(", "panel.plain & counted", "panel.plain", SOURCES),
    _m("evidence.order-waits", "def decided(self) -> bool", "if self.promoted and not self.reach:", "if False:", RACE),
    _m("evidence.shared-error", "def alpha(self, rule", "1.0 - ORDER_SHARE if self.race.own else 1.0", "1.0", RACE),
    _m("evidence.order-alone", "def weigh(", "race.choice is not None, fell", "False, fell", RACE),
    _m("race.proof", "def take(self, bets: OrderBets", "ahead and capital >=", "ahead and 1 or capital >=", RACE),
    _m("race.next-proof", "def take(self, bets: OrderBets", "alpha / 2**self.falls", "alpha", RACE),
    _m("race.own-ranking", "def take(self, bets: OrderBets", "min(lead[name].lower, own[name].lower) > 0", "lead[name].lower > 0", RACE),
    _m("race.gone", "def take(self, bets: OrderBets", "self.leader not in running", "False", RACE),
    _m("race.form", "def take(self, bets: OrderBets", "own if reach else", "own if True else", RACE),
    _m("race.nothing-known", "def dropped(self, alpha", "if name not in worse", "if name in self.lead and name not in worse", RACE),
    _m("race.no-lists", "def order_bets(", "OrderBets(dict.fromkeys(arms, ()), higher=higher)", "OrderBets()", RACE),
    _m("race.own-lists", "def order_bets(", "[] if is_nearer(shown, other[0]) else ", "", RACE),
    _m("order.geometry", "def arm_form(", "if arm.geometry == OWN_GEOMETRY:", "if False:", ORDER),
    _m("order.later", "def answering(", "or entry.version > number", "", ORDER),
    _m("order.by-hand", "def answering(", "bool(entry.measures.get(REACH, True))", "bool(entry.measures.get(REACH, reach))", ORDER),
    _m("forms.as-before", "def default_form(", "replace(DEFAULT_FORM, why", "replace(now or DEFAULT_FORM, why", CHOOSING + " " + FORMS),
    _m("forms.kept-unjudged", "def serving_form(", "keep and (chooser is not None or not judged)", "keep", FORMS),
    _m("forms.usual", "def with_usual(", "usual=usual,", "usual=1.0,", CHOOSING),
    _m("forms.judged-unlike", "def choose_by_judgments(", "if not one.is_below_far", "", CHOOSING),
    _m("forms.surely-preferred", "def is_above(self) -> bool:", "self.mean > ERRORS * self.error", "self.mean > 0", CHOOSING),
    _m("forms.below-the-own-ranking", "def is_below_far(self) -> bool:", "self.far.queries >= LEAST_FAR and self.far.is_below", "False", CHOOSING),
    _m("forms.of-a-later-version", "def choice_at(", "if one <= number", "", FORMS),
    _m("forms.kept-before", "def stands(", "return judged and isinstance", "return False and isinstance", FORMS),
    _m("forms.digest", "def digest_of(", "if CHOSEN not in record else [record[\"settings\"], record[CHOSEN]]", "", FORMS),
    _m("forms.carried-power", "def _power(self, form", "if known is None else known", "", FORMS),
    _m("forms.refined-as-chosen", "def exact(self, learner", ", self._choice_at(number)", "", FORMS),
    _m("forms.fixed-where-written", "def _fixed_where_written(", "if named else given", "if False else given", FORMS),
    _m("decide.stopped", "def outstanding(", "history.stopped or", "", DECIDE),
    _m("decide.baseline-first", "def outstanding(", "or not history.baseline <= history.seen", "", DECIDE),
    _m("decide.judge-while-stopped", "def to_judge(", "history.stopped or", "", DECIDE),
    _m("order.lists-unbet", "def take(", "if since is not None:", "if False:", IN_ORDER),
    _m("order.before-all-is-read", "def take(", "is_full or is_whole or (", "True or (", IN_ORDER),
    _m("order.lists-of-the-next", "def _next(", "if number <= self._done:", "if False:", IN_ORDER),
    _m("order.until", "def is_within(", "self.held.impression.ts < until_ms + self.held.impression.is_learned", "True", IN_ORDER),
    _m("order.not-bounded", "def _poll(self, timeout_s", "if full != self._waiting:", "if False:", "daemon/validate/test_holdout.py"),
    _m("rules.margin", "def eligible(", "self.gain >= self.margin", "self.gain > -1", RULES + " " + DECIDE),
    _m("rules.lead", "def beats(", "self.lead >= self.best.min_delta", "True", RULES + " " + DECIDE),
    _m("rules.guard", "def is_guarded(", "base - self.tolerance", "base + self.tolerance", RULES + " " + DECIDE),
    _m("rules.margin-of-few", "def margin_on(", "self.margin * float(short**NOISE_EXPONENT)", "self.margin", RULES),
    _m("history.refused-stays", "if entry.measures.get(REFUSED):", "judged = [one for one in judged if one.version != entry.version]", "pass", HISTORY),
    _m("history.former", "def _judged(", "measures.get(decided_by)", "measures.get(rule.measure)", HISTORY),
    _m("history.resume", "elif entry.kind == \"RESUME\" and", "not is_pause(entry)", "True", "daemon/validate"),
    _m("history.other-rule", "def _judged(version", "or FORMER.get(decided_by, decided_by) != rule.measure", "", HISTORY),
    _m("measures.hinge", "def shown_hinge(", "1.0 - own.astype(np.float64) + other", "1.0 + own.astype(np.float64) - other", MEASURES),
    _m("measures.auc-ties", "def auc_per_list(", "0.5 * (own == other)", "1.0 * (own == other)", MEASURES),
    _m("drift.falls-too", "def update(self, loss", "if self._recent > before else None", "", "daemon/validate/test_drift.py"),
    _m("holdout.transactions-unseen", "def _look(self", "self.transactions = self.transactions.next(self._source.held_back(), now)", "pass", "daemon/validate/test_holdout.py"),
    _m("holdout.transaction-keeps-from-judging", "def judge_next(self)", "self._rests = None", "self._rests = None\n        if self._inputs.holdout.trouble():\n            return None", "daemon/validate/test_validator.py"),
    _m("window.share", "def share_of(", "-(-size // partitions)", "size // partitions", "daemon/validate"),
    _m("window.trained-take-room", "def add(self, held", "held.offset - self._passed[held.partition]", "held.offset", PREQUENTIAL),
    _m("prequential.has-learned", "def _with_trained(", "self._candidates.open(bettor.version)", "self._candidates.open(version.number)", PREQUENTIAL),
    _m("prequential.again", "def compare_before(", "times_ms[0] < one.ts <= times_ms[1]", "one.ts <= times_ms[1]", PREQUENTIAL),
    _m("prequential.few", "def _with_trained(", "len(came) < LEAST_TRAINED", "not came", PREQUENTIAL),
    _m("prequential.of-arms", "def order_bets(", "before or not one.for_arms", "True", "daemon/validate/test_arms.py"),
    _m("prequential.arms-wait", "def learned(self, after_ms", "[*self.trained(), *for_arms]", "self.trained()", "daemon/validate/test_arms.py"),
    _m("prequential.usual", "def compare_before(", "alike=False", "alike=True", PREQUENTIAL),
    _m("ending.patience", "def wait_for(self, missing", "waited >= PATIENCE_SECONDS", "waited >= 2 * PATIENCE_SECONDS", "daemon/validate/test_ending.py",
       ("def wait_for(self, missing", "waited >= WAIT_LIMIT_SECONDS", "waited >= 2 * WAIT_LIMIT_SECONDS")),
    _m("ending.short", "def short_of_end(", "if at < end:", "if at + 1 < end:", "daemon/validate/test_ending.py"),
)

MODELS_AND_REST = (
    _m("models.pinned-moves", "def decide(wish", "and _is_pin(last) and", "and False and", "daemon/models/test_actions.py"),
    _m("models.already-there", "def decide(wish", "after == last.version and not now.doubts", "after == last.version", MODELS + " daemon/models/test_actions.py"),
    _m("models.reserved", "def _check_name(", "if whose is not None:", "if alias == LATEST:", "daemon/models/test_actions.py"),
    _m("models.name", "", "NAME.fullmatch(alias)", "NAME.match(alias)", "daemon/models/test_actions.py"),
    _m("models.gc-falls-back-to", "", "RESUMED = 2", "RESUMED = 1", "daemon/models/test_gc.py"),
    _m("models.gc-dry", "def gc(", "if not dry_run:", "if True:", "daemon/models/test_gc.py"),
    _m("restart.refused", "def decide(returncode", "if returncode in REFUSED:", "if False:", SUPERVISE),
    _m("restart.window", "def decide(returncode", "now - moment <= policy.window_s", "now - moment >= 0", SUPERVISE),
    _m("restart.delay", "def decide(returncode", "policy.first_delay_s * 2.0**recent", "policy.first_delay_s", SUPERVISE),
    _m("restart.most-failures", "def decide(returncode", "recent >= policy.most_failures", "recent > policy.most_failures", SUPERVISE),
    _m("restart.gives-up", "class RestartPolicy", "most_failures: int | None = None", "most_failures: int | None = 12", SUPERVISE),
    _m("restart.longest-wait", "def decide(returncode", ", policy.max_delay_s)", ", 2 * policy.max_delay_s)", SUPERVISE),
    _m("config.duration-parts", "def parse_duration(", "or \"\".join(part.group(0) for part in parts) != text", "", CONFIG),
    _m("config.minute", "", "\"m\": 60.0", "\"m\": 61.0", CONFIG),
    _m("config.size-unit", "", "\"kB\": 10**3", "\"kB\": 1 << 10", CONFIG),
    _m("config.env-over-file", "node = child", "node.setdefault(path[-1], value)", "node[path[-1]] = value", "daemon/test_config.py daemon/test_config_learners.py daemon/test_checks.py"),
    _m("secrets.exposed-unseen", "def exposed_files(", "mode & stat.S_IROTH", "mode & stat.S_IWOTH", CONFIG + " daemon/test_checks.py"),
    _m("secrets.file-without-any", "def exposed_files(", "if keys and", "if", CONFIG + " daemon/test_checks.py"),
    _m("config.secret-newline", "def read_secret(", "text.removesuffix(\"\\n\").removesuffix(\"\\r\")", "text", CONFIG + " daemon/kafka/test_config.py"),
    _m("config.secret-twice", "def env_layer(", "if secret is not None and plain in environ:", "if False:", CONFIG + " daemon/kafka/test_config.py"),
    _m("config.record-size", "def _record_size(", "> MAX_RECORD_BYTES", "> 2 * MAX_RECORD_BYTES", CONFIG,
       ("def _record_size(", "> MAX_VALUE_BYTES", "> 2 * MAX_VALUE_BYTES"),
       ("def _fits_the_wire(", "> MAX_VALUE_BYTES", "> 2 * MAX_VALUE_BYTES")),
    _m("exit.stream-error", "", "\"StreamUnavailable\": EX_UNAVAILABLE", "\"StreamUnavailable\": EX_DATAERR", "daemon/test_cli.py daemon/test_resume.py daemon/test_feed_command.py"),
    _m("exit.write-failed", "", "\"WriteFailed\": EX_TEMPFAIL", "\"WriteFailed\": EX_DATAERR", "daemon/test_cli.py daemon/models"),
)

MUTATIONS = (*LEARN, *LOST_FOLDER, *STEP_LOG, *REPLICA_AND_SERVE, *HTTP, *VALIDATE, *MODELS_AND_REST)
