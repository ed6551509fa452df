"""What held-out lists say of each mode of a store that is not ours (`daemon.index.verdicts`), as that store
answers: every held-out query is asked, and an object that is not among its candidates is behind those that
are, whatever its score would be. The other side of the comparison is the owner's ranking as the same store
answers it, and that of the catalog where the store holds vectors that a version exported, which cannot be
asked for it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

import numpy as np

from checkpoints import VersionStore
from daemon.config.schema import Config
from daemon.exits import EX_TEMPFAIL, EX_UNAVAILABLE, EX_USAGE, UserError
from daemon.index import StoreError, VectorIndex
from daemon.index.verdicts import IndexVerdict, ModeVerdict
from daemon.replica.vectors import NoVectorsError, VectorMaker, WantedVector, as_numbers
from daemon.replica.view import ModelId, View
from daemon.telemetry import ValidateMetrics
from daemon.validate.comparing import told_by_order
from daemon.validate.evaluator import Candidate
from daemon.validate.holdout import read_whole
from daemon.validate.inputs import open_inputs
from daemon.validate.judge import Judge
from daemon.validate.preferences import Preference, by_cluster
from daemon.validate.scorer import Panel
from daemon.validate.shown import Float, Rows
from daemon.versions.algorithms import map_of
from daemon.versions.restore import serving_form
from learners.block import Block

Lists = Sequence[Sequence[str]]
"""Ids by query, best first."""
_ASKED: tuple[WantedVector, ...] = ("folded", "own")


def judge_store(config: Config, versions: VersionStore, number: int, index: VectorIndex) -> IndexVerdict:
    """The verdict on every mode for a version, on the held-out lists that are there now. Raises UserError
    where nothing can be judged."""
    if config.index.holds_exported and number != config.index.version:
        message = f"the store holds vectors of version {config.index.version}, not of version {number}"
        remedy = (
            f"tripletd index judge {config.index.version}, or write those of {number} and set index.version"
        )
        raise UserError(message, remedy, EX_USAGE)
    with ExitStack() as stack:
        inputs = open_inputs(stack, config, ValidateMetrics(), newest_lists=True)
        impressions = read_whole(inputs.holdout)
        if not impressions:
            raise UserError("there are no held-out lists", "see feed.holdout_share", EX_TEMPFAIL)
        candidate, judge = inputs.candidates.open(number), inputs.judge()
        if judge.objects.catalog is None:
            raise UserError("modes are judged over a catalog", "set catalog.path", EX_USAGE)
        panel = judge.panel(impressions)
        block, _ = judge.objects.block(panel.queries)
        version = versions.load(number)
        fitted, form = map_of(version), serving_form(versions, version, config.serving, keep=False)
        maker, view = VectorMaker(fitted), View(ModelId(number), fitted.id, form, 0)
        own: Lists
        ids, k = [ref.id for ref in panel.queries], config.index.candidates
        if config.index.holds_exported:
            lists = {"embedded": _asked(index, k, ids, _vectors(maker, view, block, "embedded"))}
            every = (np.arange(len(judge.objects.ids)) for _ in ids)
            found = _as_scored(inputs.candidates.open(0), judge, panel, every, k + 1)
            own = [[name for name in one if name != asked][:k] for asked, one in zip(ids, found, strict=True)]
        else:
            folded, own = (_asked(index, k, ids, _vectors(maker, view, block, mode)) for mode in _ASKED)
            row_of = {name: row for row, name in enumerate(judge.objects.ids)}  # the catalog may lack some
            rows = (np.array([row_of[one] for one in of if one in row_of], np.int64) for of in folded)
            lists = {"folded": folded, "rescored": _as_scored(candidate, judge, panel, rows)}
    modes = {mode: compare_modes(panel, found, own) for mode, found in lists.items()}
    return IndexVerdict(index.name, config.index.candidates, number, modes, time.time())


def compare_modes(panel: Panel, mode: Lists, own: Lists) -> ModeVerdict:
    """How much users prefer the lists of a mode to their own ranking's; lists by query of the panel. Pure."""
    ours, theirs = (panel.in_time(scores_of(panel, lists)) for lists in (mode, own))
    lists = panel.by_time
    differences = told_by_order(ours, theirs, lists, panel.plain)
    preference = Preference.of(by_cluster(differences, panel.in_time(panel.group).tolist()))
    error = preference.error if np.isfinite(preference.error) else 0.0
    return ModeVerdict(preference.mean, error, preference.queries)


def scores_of(panel: Panel, lists: Lists) -> Float:
    """Scores of shown objects, float64 [n, L]: the number of places behind each in the list of its query, 0
    for one that is not in it. Pure."""
    places = [{name: len(found) - at for at, name in enumerate(found)} for found in lists]
    scores = np.zeros(panel.lists.valid.shape)
    for row, impression in enumerate(panel.impressions):
        known = places[int(panel.group[row])]
        for column, ref in enumerate(impression.shown):
            scores[row, column] = known.get(ref.id or "", 0)
    return scores


def _vectors(maker: VectorMaker, view: View, queries: Block, wanted: WantedVector) -> Block:
    """What the store is asked with. Raises UserError where a version has no such vectors."""

    @contextmanager
    def read() -> Iterator[View]:
        yield view

    try:
        return maker.make(read, queries, wanted).rows
    except NoVectorsError as error:
        raise UserError(f"version {view.model}: {error}", error.remedy, EX_USAGE) from error


def _asked(index: VectorIndex, k: int, ids: Sequence[str | None], vectors: Block) -> Lists:
    try:
        return [
            [one.id for one in index.search(vector, k + 1) if one.id != own][:k]
            for own, vector in zip(ids, as_numbers(vectors), strict=True)
        ]
    except StoreError as error:
        raise UserError(str(error), error.remedy, EX_UNAVAILABLE) from error


def _as_scored(
    candidate: Candidate, judge: Judge, panel: Panel, rows: Iterable[Rows], most: int | None = None
) -> Lists:
    """Objects of the catalog for each query as a version ranks them, the first `most`; rows: theirs, int64
    [any], by query."""
    scorer, folded, ids = candidate.scorer, candidate.scorer.fold(panel.queries), judge.objects.ids
    lists = []
    for query, own in enumerate(rows):
        scores = scorer.rows(folded[query : query + 1], own[None])[0] if len(own) else np.zeros(0)
        lists.append([ids[row] for row in own[np.argsort(-scores, kind="stable")[:most]].tolist()])
    return lists
