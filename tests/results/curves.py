"""What the figures of the papers show, measured on our sets: one study, set and seed at a time, kept in
.cache/results/pictures.

Every study learns from label triplets of the training part with C = .1, as the papers do, and is judged on
the test part; where learning stops is decided by the validation part alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from learners import Oasis, OasisConfig, OasisSoftmax, OasisSoftmaxConfig
from learners.maps import SpaceMap, ViewConfig
from tests.quality.bench.labels import ridge, triplets
from tests.quality.bench.sets import Floats, Ints, RawSet, fashion_bytes, load, unit
from tests.results.cells import CACHE
from tests.results.data import MOST_TRIPLETS, WHITENED, Parts, Space, Task, given_test
from tests.results.judge import Scorer, judge
from tests.results.systems import bilinear, trained, validate
from tests.results.systems_kernels import Supports, described, learner_of, weighed
from tests.results.systems_matrix import OF_OASIS, psd_after, raw, served, served_plain

FOLDER = CACHE / "pictures"
VERSION = 2
"""Of what a study means: one that was kept under another is made again."""
C = 0.1
COSINE, RAW, PLAIN, SERVED, SOFTMAX, RIDGE = (
    "cosine", "OASIS, as learned", "OASIS, PSD and normalised", "OASIS, served", "oasis-softmax, served",
    "ridge",
)  # fmt: skip

Found: TypeAlias = dict[str, Any]
Study: TypeAlias = Callable[[str, int], Found]


def kept(study: str, name: str, seed: int) -> Found | None:
    """What was measured before."""
    path = FOLDER / f"{study}-{name}-{seed}.json"
    if not path.exists():
        return None
    found: Found = json.loads(path.read_text(encoding="utf-8"))
    return found if found.pop("version") == VERSION else None


def measure(study: str, name: str, seed: int, make: Study | None = None) -> Found:
    """The study of a set and a seed, kept or measured now; make: it, None for that of this name here."""
    found = kept(study, name, seed)
    if found is None:
        found = (make or STUDIES[study])(name, seed)
        FOLDER.mkdir(parents=True, exist_ok=True)
        path = FOLDER / f"{study}-{name}-{seed}.json"
        path.write_text(json.dumps({"version": VERSION, **found}, indent=1), encoding="utf-8")
    return found


def new_task(name: str, seed: int) -> Task:
    """A task of its own, whose parts may be changed."""
    return Task(load(name), seed, given_test(name))


def of_test(task: Task, scores: Scorer, queries: Ints | None = None) -> float:
    """mAP of test queries, all or these, among the test objects."""
    rows = task.parts.test
    return judge(scores, task.truth, rows if queries is None else queries, rows).map


def oasis_of(space: Space, **options: Any) -> Oasis:
    """Untrained."""
    return Oasis(space.dim, OasisConfig(C=C, start=space.start, **options))


def learned(
    task: Task, space: Space, learner: Any, counts: Sequence[int], drawn: Ints | None = None
) -> Iterator[int]:
    """Each of the counts, once the learner has taken so many triplets: those drawn, or the task's."""
    done, drawn = 0, task.triplets if drawn is None else drawn
    for count in counts:
        for start in range(done, count, 4_000):
            part = drawn[:, start : min(count, start + 4_000)]
            learner.learn_many(*(space.rows(rows) for rows in part))
        done = count
        yield count


STEPS = (0, 250, 500, *(1_000 * 2**n for n in range(9)))


def steps(name: str, seed: int) -> Found:
    """mAP over the number of triplets, and where validation would have stopped (JMLR 11 (2010), figure 5)."""
    task = new_task(name, seed)
    space, learner = task.space, oasis_of(task.space)
    found: Found = {"counts": list(STEPS), RAW: [], SERVED: [], "validation": []}
    for _ in learned(task, space, learner, STEPS):
        scores = raw(learner, space)[0]
        found[RAW].append(of_test(task, scores))
        found[SERVED].append(of_test(task, served(learner, space)[0]))
        found["validation"].append(validate(task, scores))
    found["stop"] = STEPS[int(np.argmax(found["validation"]))]
    return found


SCHEDULES = {"never": 0, "every 1,000": 1_000, "every 5,000": 5_000, "every 20,000": 20_000}
SCHEDULE_STEPS = (5_000, 10_000, 20_000, 40_000, 80_000)
ONCE = "once, after"


def schedules(name: str, seed: int) -> Found:
    """W made positive semi-definite at intervals, once after, or never (JMLR 11 (2010), figure 9)."""
    task = new_task(name, seed)
    space = task.space
    found: Found = {"counts": list(SCHEDULE_STEPS), ONCE: []}
    for told, every in SCHEDULES.items():
        learner = oasis_of(space, psd_every=every)
        found[told] = []
        for _ in learned(task, space, learner, SCHEDULE_STEPS):
            found[told].append(of_test(task, raw(learner, space)[0]))
            if not every:
                found[ONCE].append(of_test(task, psd_after(learner, space)[0]))
    return found


SIZES = (125, 250, 500, 1_000, 2_000, 4_000)


def sizes(name: str, seed: int) -> Found:
    """Triplets and seconds until validation stops, over the number of objects that are learned from
    (JMLR 11 (2010), figure 4)."""
    found: Found = {"objects": [], "triplets": [], "seconds": [], "map": []}
    whole = new_task(name, seed).parts.train
    order = np.random.default_rng((seed, 4)).permutation(whole)
    for size in [one for one in SIZES if one < len(whole)] + [len(whole)]:
        task = new_task(name, seed)
        task.parts = Parts(np.sort(order[:size]), task.parts.validation, task.parts.test)
        row = next(one for one, form in OF_OASIS.items() if form is served)
        fit = trained(task, task.space, oasis_of(task.space), {row: served}, MOST_TRIPLETS)[row]
        found["objects"].append(size)
        found["triplets"].append(fit.triplets)
        found["seconds"].append(fit.seconds)
        found["map"].append(of_test(task, fit.scores))
    return found


RATIOS = (0.1, 0.2, 0.4, 0.6, 0.8, 1.0)
PAPERS_TRIPLETS = 3_120
"""Of ten classes with 40 objects each, of which each is a query (TPAMI 36 (2014), section 6.3)."""
JOINED, HEDGE, ALIKE, BEST = "OASIS-Con", "OMKS as printed", "OMKS-U", "OKS-Best"
KERNEL_C = 1.0


def ratios(name: str, seed: int) -> Found:
    """mAP over the share of the triplets that are learned from (TPAMI 36 (2014), figure 3)."""
    task = new_task(name, seed)
    space = described(task)
    counts = [round(PAPERS_TRIPLETS * one) for one in RATIOS]
    found: Found = {"counts": counts, JOINED: [], HEDGE: [], ALIKE: [], BEST: []}
    rows = task.parts.validation
    learner = learner_of(task, space, KERNEL_C, "hedge")
    for _ in learned(task, space, learner, counts):
        supports = Supports.of(learner)
        each = supports.scores(space.dense[rows], space.dense[rows])
        heights = [validate(task, lambda _q, _g, one=one: one) for one in each]
        alone = np.eye(len(heights))[int(np.argmax(heights))]
        found[HEDGE].append(of_test(task, weighed(space, supports, learner.theta.copy())))
        found[ALIKE].append(of_test(task, weighed(space, supports, np.ones(len(heights)) / len(heights))))
        found[BEST].append(of_test(task, weighed(space, supports, alone)))
    joined = oasis_of(space)
    for _ in learned(task, space, joined, counts):
        found[JOINED].append(of_test(task, raw(joined, space)[0]))
    return found


DISTRACTORS = (0, 1_000, 10_000, 100_000)
ASKED = 5
"""Classes of Fashion-MNIST that queries are of; the other five only distract."""
EACH = 400


def distractors(name: str, seed: int) -> Found:
    """mAP while the gallery grows by pictures of classes that are never asked for."""
    rng = np.random.default_rng((seed, 100))
    X, truth, train, asked = _with_distractors(rng)
    fitted = SpaceMap({"x": ViewConfig("whiten", {"components": WHITENED[name]})}).fit({"x": X[train]})
    Z = fitted.transform({"x": X}).values
    space = Space(Z, None, (slice(0, Z.shape[1]),), fitted)
    drawn = triplets(RawSet(name, {"x": X}, truth), train, 60_000, seed)
    learner = oasis_of(space)
    for start in range(0, drawn.shape[1], 4_000):
        learner.learn_many(*(space.rows(rows) for rows in drawn[:, start : start + 4_000]))
    scorers = {COSINE: bilinear(X), RAW: raw(learner, space)[0], SERVED: served(learner, space)[0]}
    found: Found = {"distractors": list(DISTRACTORS)} | {row: [] for row in scorers}
    queries, first = rng.permutation(asked)[:500], len(train) + len(asked)
    for count in DISTRACTORS:
        gallery = np.concatenate([asked, np.arange(first, first + count)])
        for row, scores in scorers.items():
            found[row].append(judge(scores, truth, queries, gallery).map)
    return found


def _with_distractors(rng: np.random.Generator) -> tuple[Floats, Ints, Ints, Ints]:
    """X of unit length, with those to learn from, those to ask for and `DISTRACTORS` others one after the
    other; classes, 10 for all of the others; rows of the first two."""
    pictures, labels = fashion_bytes("train")
    others, of_others = fashion_bytes("t10k")
    classes = rng.permutation(10)[:ASKED]
    train = np.concatenate([rng.choice(np.flatnonzero(labels == one), EACH, False) for one in classes])
    asked = np.concatenate([rng.choice(np.flatnonzero(of_others == one), EACH, False) for one in classes])
    away = pictures[~np.isin(labels, classes)].reshape(-1, 28, 28)
    moved = (away, away[:, :, ::-1], np.roll(away, 1, axis=1), np.roll(away, 1, axis=2))
    every = np.concatenate([one.reshape(-1, 784) for one in moved])
    every = every[rng.permutation(len(every))[: DISTRACTORS[-1]]]
    X = unit(np.concatenate([pictures[train], others[asked], every]).astype(np.float32))
    truth = np.concatenate([labels[train], of_others[asked], np.full(len(every), 10)])
    first = len(train)
    return X, truth, np.arange(first), np.arange(first, first + len(asked))


def unseen(name: str, seed: int) -> Found:
    """mAP of queries of classes that no triplet had, half of all, among all test objects, and of the others
    (JMLR 11 (2010), section 7)."""
    task = new_task(name, seed)
    classes = np.random.default_rng((seed, 7)).permutation(np.unique(task.truth))
    known = np.isin(task.truth, classes[: len(classes) // 2])
    part = task.parts
    task.parts = Parts(*(rows[known[rows]] for rows in (part.train, part.validation)), part.test)
    space = task.space
    forms = {RAW: raw, PLAIN: served_plain, SERVED: served}
    scorers = {COSINE: bilinear(task.X)}
    fits = trained(task, space, oasis_of(space), forms, MOST_TRIPLETS // 4)
    scorers |= {row: fit.scores for row, fit in fits.items()}
    both = OasisSoftmax(space.dim, OasisSoftmaxConfig(C=C, start=space.start))
    scorers[SOFTMAX] = trained(task, space, both, {SOFTMAX: served}, MOST_TRIPLETS // 16)[SOFTMAX].scores
    predicted = ridge(task.X, task.data, task.parts.train, 1.0)
    scorers[RIDGE] = lambda queries, gallery: predicted(queries)[:, gallery]
    test = part.test
    return {
        row: {
            "seen": of_test(task, scores, test[known[test]]),
            "unseen": of_test(task, scores, test[~known[test]]),
        }
        for row, scores in scorers.items()
    }


RANKERS = 5
RANKED = (1_000, 4_000, 16_000, 64_000)
ALONE, TOGETHER, SYMMETRY = "one ranker", f"the mean of {RANKERS}", "symmetry"


def rankers(name: str, seed: int) -> Found:
    """Rankers that learn from triplets of their own, and the mean of their matrices (JMLR 11 (2010), fig. 7);
    and how symmetric one is, ||sym(W)||^2 / ||W||^2 (section 6.1)."""
    task = new_task(name, seed)
    space = task.space
    found: Found = {"counts": list(RANKED), ALONE: [], TOGETHER: [], SYMMETRY: []}
    every = [oasis_of(space) for _ in range(RANKERS)]
    own = [triplets(task.data, task.parts.train, RANKED[-1], 1_000 + seed + one) for one in range(RANKERS)]
    done = 0
    for count in RANKED:
        for learner, rows in zip(every, own, strict=True):
            learner.learn_many(*(space.rows(one) for one in rows[:, done:count]))
        done = count
        found[ALONE].append(float(np.mean([of_test(task, raw(one, space)[0]) for one in every])))
        mean = np.mean([one.W for one in every], axis=0)
        found[TOGETHER].append(of_test(task, bilinear(space.dense, mean)))
        W = every[0].W.astype(np.float64)
        found[SYMMETRY].append(float(np.sum(((W + W.T) / 2) ** 2) / np.sum(W**2)))
    return found


STUDIES: Mapping[str, Study] = {
    "steps": steps,
    "schedules": schedules,
    "sizes": sizes,
    "rankers": rankers,
    "ratios": ratios,
    "distractors": distractors,
    "unseen": unseen,
}
"""By name."""
SETS_OF: Mapping[str, Sequence[str]] = {
    "steps": ("photos", "tfidf", "sentences", "fashion"),
    "schedules": ("photos", "sentences"),
    "sizes": ("photos", "sentences", "fashion"),
    "rankers": ("photos", "sentences", "fashion"),
    "ratios": ("photos",),
    "distractors": ("fashion",),
    "unseen": ("photos", "tfidf", "sentences", "fashion"),
}
"""The sets of each study."""
