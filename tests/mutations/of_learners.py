"""Mutations of `learners`: checks, steps, kernels over supports, weights, caps, keys, forms, search."""

# fmt: off
# ruff: noqa: E501  (one mutation, one line)

from __future__ import annotations

from tests.mutations.mutation import Mutation
from tests.mutations.mutation import mutation as made

EVENTS = "learners/test_laws_of_events.py"
FORMULAS = "learners/test_laws_of_formulas.py"
LAWS = "learners/test_laws.py"
STATES = "learners/test_laws_of_states.py"
OASIS = "learners/test_oasis_oracle.py"
DISTANCE = "learners/test_distance.py"
SOML = "learners/soml/test_soml.py"
OMKS = "learners/multikernel/test_omks.py"
BUDGET = "learners/multikernel/test_budget.py"
HEDGE = "learners/test_hedge.py"
CAPS = "learners/caps/test_caps.py"
KEYED = "learners/keyed/test_keyed.py"
TOPK = "learners/search/test_topk.py"
SERVING = "learners/test_serving.py"
TETHER = "learners/test_tether.py"
GIVING_WAY = "learners/test_backoff.py"
OUTSIDE = "learners/test_embedding.py"
MEASURES = "learners/test_measures.py"


STEPS_OF_OASIS = ("step_dense", "step_sparse")


def _m(
    name: str, mark: str, old: str, new: str, tests: str, *more: tuple[str, str, str], compiled: tuple[str, ...] = ()
) -> Mutation:
    return made(f"learners.{name}", "learners", mark, old, new, tests, *more, compiled=compiled)


def _check(name: str, mark: str, old: str, new: str, tests: str) -> Mutation:
    """Of what every step is made of: compiled into the steps of OASIS alone, to save minutes."""
    return _m(name, mark, old, new, tests, compiled=STEPS_OF_OASIS)


CHECKS = (
    _check("value.magnitude-sign", "def scan_value", "abs(value) > MAX_MAGNITUDE", "value > MAX_MAGNITUDE", f"{EVENTS} -k oasis"),
    _check("value.nan-passes", "def scan_value", "if not np.isfinite(value):", "if value == np.inf:", f"{EVENTS} -k oasis"),
    _check("row.index-at-dim", "def scan_sparse", "index >= dim", "index > dim", f"{EVENTS} -k oasis"),
    _check("row.negative-index", "def scan_sparse", "index < 0 or", "index < -1 or", f"{EVENTS} -k oasis"),
    _check("row.repeated-index", "def scan_sparse", "index <= previous", "index < previous", f"{EVENTS} -k oasis"),
    _check("weight.zero-refused", "def scan_weight", "weight < 0", "weight <= 0", f"{EVENTS} -k oasis"),
    _check("weight.negative-passes", "def scan_weight", "MAGNITUDE if weight < 0 else scan_value(weight)", "scan_value(weight)", f"{EVENTS} -k oasis"),
    _check("tau.no-clamp", "def step_size", "min(aggressiveness, loss / squared_norm)", "loss / squared_norm", f"{FORMULAS} -k oasis"),
    _check("tau.clamp-is-largest", "def step_size", "min(aggressiveness, loss / squared_norm)", "max(aggressiveness, loss / squared_norm)", f"{FORMULAS} -k oasis"),
    _check("loss.margin-sign", "def step_size", "max(0.0, 1.0 - margin)", "max(0.0, 1.0 + margin)", f"{FORMULAS} -k oasis"),
    _check("loss.margin-of-half", "def step_size", "max(0.0, 1.0 - margin)", "max(0.0, 0.5 - margin)", f"{FORMULAS} -k oasis"),
    _check("step.no-direction-guard", "def step_size", "if not squared_norm > 0.0:", "if squared_norm == -1.0:", f"{EVENTS} -k oasis"),
    _check("step.zero-weight-updates", "def step_size", "loss == 0.0 or aggressiveness == 0.0", "loss == 0.0", f"{EVENTS} -k oasis"),
    _check("step.nonfinite-margin", "def step_size", "not np.isfinite(margin) or not np.isfinite(np.float32(loss))", "margin != margin", "learners/test_kernels.py -k margin_beyond_float32"),
)

MATRICES = (
    _m("delayed.error-sign", "def sides(", "builder.fsub(c, s)", "builder.fsub(s, c)", OASIS),
    _m("delayed.budget", "def _learn(", "accepted == budget", "accepted > budget", f"{FORMULAS} -k psd"),
    _m("delayed.norm", "def _read(", "norms[0] * norms[1]", "norms[0] + norms[1]", OASIS),
    _m("delayed.symmetric-half", "def _scale(", "half * tau[n] * pairs[2 * n, column]", "tau[n] * pairs[2 * n, column]", OASIS),
    _m("delayed.mirror", "def _mirror(", "row * dim + column, column * dim + row", "column * dim + row, row * dim + column", "learners/test_pending.py -k 'margins and symmetric'"),
    _m("delayed.pending-forgotten", "def _learn(", "if count > 0:", "if count > 1:", f"{FORMULAS} -k waiting"),
    _m("delayed.pending-other-side", "def _dots(", "mine if side < 2 else 1 - mine", "mine", f"{FORMULAS} -k waiting"),
    _m("delayed.kept-after-adding", "def step_dense(", "_empty(waiting, pairs, count, used)", "pass", f"{LAWS} -k waiting"),
    _m("delayed.alike-by-first-number", "def _alike(", "unlike == 0", "True", "learners/test_by_query.py"),
    _m("arms.settings-of-defaults-not-kept", "class ArmConfig:", "getattr(made, name)) for name in arm.of_kind.others", "value) for name, value in arm.settings", "learners/test_arms.py"),
    _m("arms.kind-of-another-size-merged", "def _alike(arm: State", "other is not None and shapes_of(arm) == shapes_of(other)", "other is not None", "learners/test_arms.py"),
    _m("adapter.weight-lost", "def adapter_gradient(", "shares *= (weights /", "shares *= (np.ones_like(weights) /", "learners/test_adapter.py"),
    _m("adapter.skipped-lost", "def adapter_gradient(", "np.concatenate(rows[1:])", "rows[1]", "learners/test_adapter.py"),
    _m("adapter.minibatch-cut-short", "class SoftmaxAdapter(", "if self.waiting == self.config.batch:", "if True:", "learners/test_adapter.py"),
    _m("arms.of-held-out-lists", "def takes(rule", "left if arm else left | np.uint8(ONLY_ARMS)", "left", "learners/test_arms.py"),
    _m("arms.both-samples", "def takes(rule", 'ONLY_BOTH if rule == "above" else ONLY_ABOVE', "0", "learners/test_arms.py"),
    _m("arms.error-of-a-thread-lost", "class Arms:", "one.result()", "pass", "learners/test_arms.py"),
    _m("delayed.full-room-left", "def step_dense(", "count = _added(W, waiting, pairs, count, kind)", "pass", f"{LAWS} -k waiting"),
    _m("sweep.strip-not-kept", "def _take(", "panels, put)", "panels, 0)", f"{FORMULAS} -k waiting"),
    _m("delayed.sparse-leaves-pending", "class Oasis(", "self.settled().reshape(-1)", "self.base.reshape(-1)", "learners/test_pending.py"),
    _m("oasis.sparse-budget", "def step_sparse(", "if accepted == budget:", "if accepted > budget:", f"{FORMULAS} -k psd"),
    _m("oasis.sparse-weight-lost", "def step_sparse(", "C * weight", "C", f"{FORMULAS} -k oasis"),
    _m("oasis.sparse-next-norm", "def step_sparse(", "q_squared * e_squared", "q_squared", OASIS),
    _m("rows.difference-sign", "def difference(", "-s_val[b]", "s_val[b]", OASIS),
    _m("rows.difference-tail", "def difference(", "while a < a_end or b < b_end:", "while a < a_end and b < b_end:", OASIS),
    _m("rows.dot-remainder", "def _row_dot(", "while place < end:", "while place + one < end:", OASIS),
    _m("rows.add-twice-tau", "W <- W + tau q (c - s)^T.", "tau * q_val[i]", "np.float32(2) * tau * q_val[i]", OASIS),
    _m("rows.symmetric-half", "def add_symmetric(W: Any, dim: Any, tau: Any, query: Csr", "half = np.float32(0.5) * tau", "half = tau", OASIS,
       ("def add_symmetric_sparse(", "half = np.float32(0.5) * tau", "half = tau")),
    _m("rows.union-order", "def _union(", "if e_next <= q_next:", "if e_next < q_next:", OASIS),
    _m("oasis.projection-one-late", "def _apply(self, batch: TripletBatch", "every - self.events % every if every", "every + 1 - self.events % every if every", f"{FORMULAS} -k psd",
       ("def _up_to_projections(", "every - self.events % every if every", "every + 1 - self.events % every if every")),
    _m("oasis.events-not-counted", "class Oasis:", "self.events += accepted", "self.events += consumed", f"{EVENTS} -k oasis",
       ("def _up_to_projections(", "self.events += int(accepted)", "self.events += int(consumed)")),
    _m("oasis.projection-not-told", "class Oasis:", "info.projected.append(start + int(consumed))", "pass", "learners/test_steps.py",
       ("def _up_to_projections(", "info.projected.append(done)", "pass")),
    _m("distance.m-is-one-side", "def pairs_dense(", "(q - c) + (q - s)", "(q - c) + (q - c)", f"{DISTANCE} -k lego"),
    _m("distance.e-sign", "def pairs_dense(", "c - s\n", "s - c\n", f"{DISTANCE} -k lego"),
    _m("distance.squares", "def squares(self)", "self.norms[:, 2] ** 2) / 2", "self.norms[:, 2] ** 2)", DISTANCE),
    _m("delayed.step-weight", "def _learn(", "C * weight", "C", "learners/test_oasis_oracle.py -k weights"),
    _m("lego.after-half", "def _after(", "1.0 - 0.5 * size * k", "1.0 + 0.5 * size * k", DISTANCE),
    _m("lego.after-root", "def _after(", "0.25 * size * size * pr", "0.25 * size * pr", DISTANCE),
    _m("lego.bisection-side", "def _size(", "middle < eta *", "middle > eta *", DISTANCE),
    _m("lego.degenerate-guard", "def _outcome(", "if p <= 0.0 or r <= 0.0:", "if p < 0.0 or r < 0.0:", f"{DISTANCE} {EVENTS} -k 'lego or outcomes'"),
    _m("lego.step-y", "y[i] = np.float32(scale * (images[1, i]", "size * r / w", "size * p / w", DISTANCE),
    _m("lego.dense-sums-skipped", "def lego_dense(", "if m != 0 or e != 0:", "if m != 0 and e != 0:", DISTANCE),
    _m("lego.sparse-products", "_along(sums, t, images[0])", "_along(errors, t, images[1])", "_along(sums, t, images[1])", DISTANCE),
    _m("averaged.first-not-counted", "", "np.cumsum(info.outcome != REJECTED) - 1\n", "np.cumsum(info.outcome != REJECTED)\n", "learners/test_averaged.py"),
    _m("averaged.counts-rejected", "earlier = before", "info.outcome != REJECTED", "info.outcome == info.outcome", f"learners/test_averaged.py {FORMULAS} -k averaged"),
    _m("state.nan-passes", "def checked_matrix(", "np.isfinite(rows).all()", "True", f"{STATES} -k 'oasis'",
       ("def saved(", "np.isfinite(flat[start : start + CHECKED]).all()", "True")),
    _m("state.asymmetric-passes", "def symmetric_matrix(", "if not np.array_equal(", "if False and not np.array_equal(", DISTANCE,
       ("def require_symmetric(", "if not np.array_equal(", "if False and not np.array_equal(")),
    _m("state.writable-views", "def as_state(", "view.flags.writeable = False", "view.flags.writeable = True", f"{STATES} -k 'oasis'",
       ("def read_only(", "view.flags.writeable = False", "view.flags.writeable = True")),
    _m("state.events-lost", "def as_state(", "np.array(events, np.int64)", "np.array(0, np.int64)", f"{LAWS} {STATES} -k 'psd'",
       ("return {\"W\": self.W,", "np.array(self.events, np.int64)", "np.array(0, np.int64)"),
       ("return {\"W\": self.base,", "np.array(self.events, np.int64)", "np.array(0, np.int64)")),
)

DIAGONALS = (
    _m("da.line-slope", "def _line(", "1.0 / (gamma * root)", "1.0 / gamma", SOML),
    _m("da.line-threshold", "def _line(", "rho + root * lam / gamma", "rho + lam / gamma", SOML),
    _m("da.weight-sign", "w_j of G_j", "-size if total > 0 else size", "size if total > 0 else -size", SOML),
    _m("da.passive-no-round", "counts = outcome[row] == PASSIVE", "and weight > 0", "and weight < 0", SOML),
    _m("da.add-sign", "G <- G - weight g.", "-= weight", "+= weight", SOML,
       ("DA: one accepted event", "-= weight", "+= weight")),
    _m("tg.shrunk-not-noted", "", "shrunk[column] = violations", "shrunk[column] = violations - 1", SOML,
       ("", "seen[column] = violations", "seen[column] = violations - 1")),
    _m("tg.alpha", "eta, alpha = settings[0]", "settings[0] * settings[1]", "settings[1]", SOML,
       ("violations, eta, alpha = rounds[0]", "settings[0] * settings[1]", "settings[1]")),
    _m("tg.below-zero", "w_j after so many violating rounds", "max(0.0, size)", "size", SOML),
    _m("tg.no-weight", "eta, alpha = settings[0]", "eta * weight * values[place]", "eta * values[place]", SOML,
       ("violations, eta, alpha = rounds[0]", "eta * weight * values[place]", "eta * values[place]")),
    _m("soml.products-lost-entry", "place += np.uint64(product != 0)", "product != 0", "product > 0", SOML,
       ("np.float64(in_clicked[i]) - np.float64(in_skipped[i])", "product != 0", "product > 0")),
    _m("soml.meet-moves-both", "def _meet(", "i += np.uint64(mine <= theirs)", "i += np.uint64(mine < theirs)", SOML),
    _m("soml.verdict-degenerate", "an accepted event: updated is a violating round", "not np.isfinite(margin) or not np.isfinite(rounded)", "margin == np.inf", f"{SOML} {EVENTS} -k 'soml or largest'"),
    _m("soml.sound-index", "faults = np.int32(indices[first] < 0)", "indices[last - one] >= dim", "indices[last - one] > dim", f"{SOML} {EVENTS} -k 'soml or malformed'"),
)

WEIGHED = (
    _m("hedge.mistake-at-zero", "def _hedge(", "if not margins[i] > 0:", "if margins[i] < 0:", f"{HEDGE} {OMKS}"),
    _m("hedge.asleep-moves", "shift = before - _log_mass(", "if awake[i]:", "if True:", HEDGE),
    _m("hedge.discount-lost", "def _hedge(", "if rule == DISCOUNT:", "if rule == SHARE:", HEDGE),
    _m("hedge.share-given", "def _hedge(", "np.log(rate / count)", "np.log(rate)", f"{HEDGE} {OMKS}"),
    _m("hedge.margins-clamp", "def _margin_step(", "min(C, loss / squares)", "loss / squares", f"{HEDGE} {OMKS}"),
    _m("hedge.margins-floor", "def _margin_step(", "max(0.0, standing[i] + tau * margins[i])", "standing[i] + tau * margins[i]", HEDGE),
    _m("hedge.fixed-moves", "def weigh(", "elif rule != FIXED:", "else:", f"{HEDGE} {OMKS}"),
    _m("hedge.beta-of-1", "class HedgeConfig", "if not 0 < self.beta < 1:", "if not 0 < self.beta <= 1:", HEDGE),
    _m("hedge.best-beta", "def best_beta(", "math.sqrt(math.log(kernels))", "math.log(kernels)", "learners/test_bounds.py -k 'beta or vote'"),
    _m("supports.worst-is-newest", "def _worst(", "joined[place] < joined[worst]", "joined[place] > joined[worst]", BUDGET),
    _m("supports.worst-ties", "def _worst(", "(size == least and older)", "(size == least)", BUDGET),
    _m("supports.users-leak", "def _evict(", "users[triplets[place, SKIPPED], 1] -= 1", "users[triplets[place, SKIPPED], 1] -= 0", BUDGET),
    _m("supports.found-free-slot", "def _find(", "users[slot, 0] + users[slot, 1] > 0", "True", BUDGET),
    _m("supports.joined-not-renewed", "for k in range(len(taus)):\n        tau[place, k] += taus[k]", "joined[place] = counts[0]", "joined[place] = max(joined[place], 1)", BUDGET),
    _m("supports.own-square", "def _own_values(", "(cc - cs) + (ss - cs)", "(cc - cs) + (ss + cs)", OMKS),
    _m("supports.asleep-learns", "def _wake(", "and lengths[2, view] > 0", "", OMKS),
    _m("kernel.cosine-unsilenced", "def _silence(", "norms[tile, view, lane] * lengths[i, view] > 0", "norms[tile, view, lane] >= 0", OMKS),
    _m("kernel.degree", "def _power(", "for _ in range(degree):", "for _ in range(degree - 1):", OMKS),
    _m("blocks.wake", "def _awake(", "held & 0xFF0000 and held & 0xFF000000", "held & 0xFF000000", f"learners/test_omks_maps.py {FORMULAS} -k maps"),
    _m("blocks.tau-told", "def weigh_steps(", "np.max(taus[:, t])", "np.min(taus[:, t])", f"{FORMULAS} {LAWS} -k maps"),
)

AROUND = (
    _m("caps.refused-at-cap", "def judge(window", "if total - held >= caps[kind]:", "if total - held > caps[kind]:", CAPS),
    _m("caps.item-twice", "def counts_for(", "named[SKIPPED] == named[CLICKED]", "named[SKIPPED] == named[QUERY]", CAPS),
    _m("caps.leaves-window-late", "def plan(\n    window", "if admitted >= size:", "if admitted > size:", CAPS),
    _m("caps.held-not-settled", "def settle(window: Any", "spent[place] - held, -held, 0", "spent[place] - held, 0, 0", CAPS),
    _m("caps.settle-rounds-down", "def settle(window: Any", "np.ceil(", "np.floor(", CAPS),
    _m("caps.hole-hides-key", "def take_out(", ">= (at - hole) & mask", "> (at - hole) & mask", CAPS),
    _m("caps.kinds-meet", "def key_of(", "np.uint64(min(kind, CLICKED) + 1)", "np.uint64(1)", CAPS),
    _m("caps.skipped-apart", "def key_of(", "min(kind, CLICKED) + 1", "kind + 1", CAPS),
    _m("caps.spent-without-update", "def _spent(info", "np.where(info.outcome == UPDATED, steps, 0.0)", "steps", CAPS),
    _m("caps.full-step", "def _spent(info", "/ full_step", "", CAPS),
    _m("caps.limited-count", "limited = int(np.count_nonzero(", "limits[rows] < weights[rows]", "limits[rows] <= weights[rows]", "learners/caps daemon/learn/test_caps.py"),
    _m("keys.evict-too-soon", "def _let_in(self, key", "number - self.last[slot] < ", "number - self.last[slot] > ", KEYED),
    _m("keys.evict-off-by-one", "def _let_in(self, key", "number - self.last[slot] < ", "number - self.last[slot] <= ", KEYED),
    _m("keys.order-not-moved", "tenancy[row] = current[slot]", "self._slot_of.move_to_end(key)", "pass", KEYED),
    _m("keys.memory-kept", "def _begin(self, slot", "self._arrays[name][slot] = array", "pass", KEYED),
    _m("keys.refused-lets-in", "used = len(self)", "np.flatnonzero(reason == Reason.NONE)", "np.flatnonzero(reason >= Reason.NONE)", KEYED),
    _m("keys.name-not-cleared", "self._slot_of[key] = slot", "self.name[slot] = 0", "pass", KEYED),
    _m("keys.restored-order", "def _list_keys(self)", "sorted(range(used), key=last.__getitem__)", "range(used)", KEYED),
    _m("keys.replayed-twice", "models by key take triplets", "steps.numbers[0] < self.directory.clock", "steps.numbers[0] < 0", KEYED),
    _m("pull.one-late", "scale = checked_weights(batch, self.dim, weights)\n        infos, done", "self.config.every - self.events % self.config.every", "self.config.every + 1 - self.events % self.config.every", TETHER,
       ("infos, done = [], 0", "self.config.every - self.events % self.config.every", "self.config.every + 1 - self.events % self.config.every")),
    _m("pull.counts-rejected", "accepted = int(np.count_nonzero(", "infos[-1].outcome != REJECTED", "infos[-1].outcome >= 0", f"{TETHER} {FORMULAS} -k 'tethered or cut or formula'"),
    _m("pull.radius-lost", "def _pull(learner", "pull(learner.W, config.decay, config.radius, learner.config.start)", "pull(learner.W, config.decay, 0.0, learner.config.start)", TETHER,
       ("def _pull(learner", "pull(learner.settled(), config.decay, config.radius, learner.config.start)", "pull(learner.settled(), config.decay, 0.0, learner.config.start)")),
    _m("pull.restored-events", "def from_state(cls, arrays: Mapping[str, NDArray[Any]], config: TetherConfig", "state_events(arrays)", "0", f"{LAWS} {TETHER} -k 'tethered or cut'",
       ("self.learner = _CLASSES[type(inner)].from_state(", "saved_count(arrays, \"events\")", "0")),
    _m("form.negatives-stay", "def psd_part(", "symmetric + half @ half.T", "symmetric", SERVING),
    _m("form.power", "def psd_part(", "np.float32(power / 2)", "np.float32(power)", SERVING),
    _m("form.tangent-power", "def psd_tangent(", "np.float32(power - 1)", "np.float32(power)", "learners/test_carried.py"),
    _m("form.raw-sharpened", "def from_matrix(", "power if normalised else 1.0", "power", SERVING),
    _m("form.distance-fold", "fold_symmetric(self._state(), block)", "folded *= np.float32(2)", "folded *= np.float32(1)", "learners/test_distance_form.py"),
    _m("form.self-negative", "self_products(self.matrix if self.matrix is not None else self._state()", "np.maximum(products, 0)", "products", SERVING),
    _m("backoff.gives-way", "def _weights(self, folded", "np.minimum(known / self.familiar, 1) ** self.backoff", "np.ones(len(block))", GIVING_WAY),
    _m("backoff.own-score", "def _weights(self, folded", "(learned + own, mixed,", "(mixed, mixed,", GIVING_WAY),
    _m("backoff.norms", "return self.learned.self_scores(items, pieces)", " + self._own.self_scores(items)", "", GIVING_WAY),
    _m("backoff.scale-of-what-was-learned", "def usual_ratio(", "/ _size(learned)", "", GIVING_WAY),
    _m("outside.never-gives-way", "class Embedding", "given[:, None] * turned + (1 - given)[:, None] * behind", "turned + 0 * behind", OUTSIDE),
    _m("outside.inverse-root", "def _root_beside(", "lambda v: 1 / np.sqrt(1 + v)", "lambda v: np.sqrt(1 + v)", OUTSIDE),
    _m("outside.distance-apart", "class Embedding", "-self._own(rows), np.ones(len(rows), np.float32)", "self._own(rows), np.ones(len(rows), np.float32)", OUTSIDE),
    _m("outside.lengths-stay", "def documents(", "if self.form.normalised:\n            to_unit", "if False:\n            to_unit", OUTSIDE),
    _m("outside.weights-of-views", "def linear_space(", "found.matrix * fitted.scales.get(name, 1.0)", "found.matrix", OUTSIDE),
    _m("outside.scaled-rows-fold", "def linear_space(", "if found.rows == \"scaled\" and not alone:", "if False:", OUTSIDE),
    _m("spectrum.symmetry", "def symmetry_index(", "symmetric_squares(W) / whole", "whole / whole", "learners/test_averaged.py -k symmetry"),
    _m("spectrum.negatives", "sizes = np.abs(values)\n    total, below", "values < -EPS * norm", "values < EPS * norm", "learners/test_change.py"),
    _m("search.offset-shape", "def _row_terms(", "given.shape != (rows,)", "given.ndim != 1", TOPK),
    _m("measures.ranks-of-ties", "def ranks_of(", "np.searchsorted(np.flatnonzero(scores == value), relevant[tied])", "0", MEASURES),
    _m("measures.relevant-last", "def ranks_of(", "others + np.argsort", "np.argsort", MEASURES),
    _m("measures.excluded", "def ranks_of(", "(own > wanted) |", "", MEASURES),
    _m("measures.excluded-last", "def ranks_of(", "(last | (exclude < relevant))", "(exclude < relevant)", MEASURES),
    _m("measures.ap", "def average_precision_at(", "np.arange(1, ordered.shape[0] + 1)", "np.arange(ordered.shape[0])", MEASURES),
    _m("measures.ap-of-first", "def average_precision_at(", "min(ordered.shape[0], k)", "ordered.shape[0]", MEASURES),
    _m("graph.few-links", "def complete(links", "np.flatnonzero(in_degree < WANTED)", "np.flatnonzero(in_degree < 0)", "learners/test_graph_links.py"),
    _m("search.query-nan", "def checked_queries(", "if not np.isfinite(queries).all():", "if False:", TOPK),
    _m("search.row-below", "def row_numbers(", "array.min() < 0 or", "", TOPK),
)

MUTATIONS = (*CHECKS, *MATRICES, *DIAGONALS, *WEIGHED, *AROUND)
