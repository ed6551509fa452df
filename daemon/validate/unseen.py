"""How versions do on kinds of queries of which nothing is learned, against the user's own ranking.

Of a query that is held out alone, others of its kind are learned. Lists of kinds that are held out as a whole
(`streams.feed.kinds`) are judged apart: by what users prefer, as everywhere. No bets are made on them, so
that all of them may tell which form to take.

What is two clicks away, which guards versions elsewhere, says nothing here: queries of one kind lead to what
the list maker put near to all of them, and every ranking that differs from the list maker's loses on it,
also one that is better by labels (docs/decisions/044).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from daemon.validate.comparing import told_by_order
from daemon.validate.judge import Judge
from daemon.validate.measures import NO_PREFERENCE, Preference, by_cluster
from daemon.validate.scorer import Scorer
from streams.event import Impression


class UnseenKinds:
    """Lists of such kinds, oldest first; own: scores of the user's own ranking."""

    def __init__(self, judge: Judge, impressions: Sequence[Impression], own: Scorer) -> None:
        self._judge = judge
        self._panel = judge.panel(impressions) if impressions else None
        self._own = None if self._panel is None else judge.shown_scores(own, self._panel)

    def compare(self, scorer: Scorer) -> Preference:
        """How much users prefer a ranking to their own; nothing where lists are nearer to it. Raises
        NotFinite.
        """
        panel = self._panel
        if panel is None or self._own is None:
            return NO_PREFERENCE
        lists, groups = panel.lists.in_order(panel.order), panel.in_time(panel.group)
        found = told_by_order(
            self._judge.shown_scores(scorer, panel), self._own, lists, np.ones(len(panel), bool)
        )
        told = ~np.isnan(found)
        return Preference.of(by_cluster(found[told], groups[told].tolist()))


def to_measures(found: Preference) -> dict[str, float]:
    """As it stands among a version's measures; nothing for fewer than two queries."""
    if found.queries < 2:
        return {}
    return {
        "unseen_preference": found.mean,
        "unseen_error": found.error,
        "unseen_queries": float(found.queries),
    }
