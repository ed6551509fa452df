"""What held-out lists say of each mode of a store that is not ours (`daemon.index.verdicts`), as that store
answers: every held-out query is asked, and an object that is not among its candidates is behind those that
are, whatever its score would be.

The other side of the comparison is the owner's ranking as the same store answers it, and that of the catalog
where the store holds vectors that a version exported, which cannot be asked for it. Differences are those
that versions are judged by (`daemon.validate.comparing`), clustered by query.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
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
from daemon.validate.shown import Float
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
        ids, k = [ref.id for ref in panel.queries], config.index.candidates
        if config.index.holds_exported:
            lists = {"embedded": _asked(index, k, ids, _vectors(maker, view, block, "embedded"))}
            own = _best_of_catalog(inputs.candidates.open(0), judge, panel, k)
        else:
            folded, own = (_asked(index, k, ids, _vectors(maker, view, block, mode)) for mode in _ASKED)
            lists = {"folded": folded, "rescored": _in_served_order(candidate, judge, panel, folded)}
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


def _in_served_order(candidate: Candidate, judge: Judge, panel: Panel, lists: Lists) -> Lists:
    """The same candidates as the version scores them; those that the catalog lacks are left out."""
    rows = {name: row for row, name in enumerate(judge.objects.ids)}
    folded = candidate.scorer.fold(panel.queries)
    ordered = []
    for query, found in enumerate(lists):
        known = [name for name in found if name in rows]
        places = np.array([[rows[name] for name in known]], np.int64)
        scores = candidate.scorer.rows(folded[query : query + 1], places)[0] if known else np.zeros(0)
        ordered.append([known[at] for at in np.argsort(-scores, kind="stable").tolist()])
    return ordered


def _best_of_catalog(candidate: Candidate, judge: Judge, panel: Panel, k: int) -> Lists:
    """The first `k` objects of the catalog for each query as a version ranks them, itself left out."""
    ids = judge.objects.ids
    rows = np.arange(len(ids))[None]
    folded, ranked = candidate.scorer.fold(panel.queries), []
    for query, ref in enumerate(panel.queries):
        scores = candidate.scorer.rows(folded[query : query + 1], rows)[0]
        order = np.argsort(-scores, kind="stable")[: k + 1].tolist()
        ranked.append([ids[row] for row in order if ids[row] != ref.id][:k])
    return ranked
