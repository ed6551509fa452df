"""Judges and scores of the small world."""

from __future__ import annotations

import numpy as np

from daemon.validate.holdout import is_usable
from daemon.validate.judge import Judge, JudgedQueries
from daemon.validate.judgments import load_judgments
from daemon.validate.scorer import MappedObjects
from learners.forms.serving import ServingForm
from streams.event import ObjectRef
from streams.partitions import is_holdout, route_key


def plain(dim, normalised=True):
    """The form of the untrained state: cosine."""
    eye = np.eye(dim, dtype=np.float32)
    return ServingForm(eye, np.zeros((dim, 0), np.float32), np.zeros(0, np.float32), normalised)


def usable(world, count, **how):
    return [one for one in (world.impression(**how) for _ in range(count * 2)) if is_usable(one)][:count]


def held_out(query_id):
    """One object in three, so that a small catalog has some of every class."""
    return is_holdout(route_key(ObjectRef(query_id)), 1 / 3, 0)


class OneJudge(Judge):
    """Judges impressions."""

    def on(self, scorer, impressions):
        return self.look(scorer, self.panel(impressions)).measures


def judge_of(world, judgments=True, max_queries=1000):
    objects = MappedObjects(world.space, world.catalog, world.fitted)
    judged = None
    if judgments:
        bound = load_judgments(f"labels:{world.path / 'labels.tsv'}").bind(world.ids)
        judged = JudgedQueries(objects, bound, held_out, max_queries)
    return OneJudge(objects, judged, max_queries), objects


def cosine(world):
    unit = world.values / np.linalg.norm(world.values, axis=1, keepdims=True)
    return unit @ unit.T


def never(seconds, error):
    raise AssertionError(error)


def turn(validator):
    validator.watch_drift(validator.read(0.0, never, lambda: None))
    return validator.judge_next()


def kinds(world):
    return [(entry.kind, entry.version) for entry in world.ledger.entries()]


def better_and_better(world, count):
    """Versions that learn on, each with impressions of its own time."""
    for number in range(count):
        world.feed(20)
        world.publish(events=700 * number)
        world.learn(700)
        yield


def measures_of(world, version):
    found = [e.measures for e in world.ledger.entries() if e.kind == "KEEP" and e.version == version]
    return found[-1]
