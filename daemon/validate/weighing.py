"""Evidence for and against opened versions, gathered on the window and added to what the ledger knows."""

from __future__ import annotations

from dataclasses import replace

from daemon.validate.decide import DecisionRule, fallen
from daemon.validate.evaluator import Candidate, CandidateCache, CandidateRejected, Evaluator
from daemon.validate.evidence import Conclusion, EvidenceRule, Standing, is_inferior, weigh
from daemon.validate.holdout import Holdout
from daemon.validate.ledger import Weighed

AGAIN_SHARE = 10
"""A version is judged once more when this part of a window has come since: also without new versions lists go
on to tell.
"""


class Weigher:
    """Compares versions by the clicks of one holdout. `rule`: its guards count where nothing is two clicks
    away.
    """

    def __init__(
        self, candidates: CandidateCache, holdout: Holdout, rule: DecisionRule, evidence: EvidenceRule
    ) -> None:
        self._candidates = candidates
        self._holdout = holdout
        self._rule = rule
        self._evidence = evidence

    def weigh(
        self, evaluator: Evaluator, version: Candidate, against: tuple[Candidate, Candidate], known: Standing
    ) -> Weighed:
        """A version against version 0 and the best one. Raises NotFinite."""
        zero, best = against
        anchor, known = self._anchor(known, best)
        seen = evaluator.compare(version, (zero, best, anchor), self._holdout.window, known.through)
        if not seen.away:
            seen = replace(seen, barred=self._barred(evaluator, version, zero))
        standing, outcome = weigh(known, self._evidence, version.number, best.number, seen)
        return Weighed(version.number, best.number, standing, outcome, self._evidence)

    def carry(self, evaluator: Evaluator, best: Candidate, zero: Candidate, known: Standing) -> Weighed:
        """The best version, after learning went on: it stays best unless the window says that it is worse.

        Raises NotFinite.
        """
        worse = self.is_worse(evaluator, best, zero)
        outcome = Conclusion("inferior" if worse else "not yet", promoted=not worse, fell=worse)
        standing = known.anchored(0 if worse else best.number)
        return Weighed(best.number, best.number if worse else 0, standing, outcome, self._evidence)

    def is_worse(self, evaluator: Evaluator, version: Candidate, zero: Candidate) -> bool:
        """Whether users surely prefer version 0 on the window as a whole. Raises NotFinite."""
        seen = evaluator.compare(version, (zero, zero, zero), self._holdout.window, {})
        return is_inferior(seen.fresh, self._evidence)

    def is_worth_another(self, known: Standing, least: int) -> bool:
        """Whether enough lists have come since the last judgement for one more of the same version."""
        window, after = self._holdout.window, known.through
        fresh = sum(held.offset >= after.get(held.partition, 0) for held in window)
        return fresh >= max(least, self._evidence.horizon // AGAIN_SHARE)

    def _anchor(self, known: Standing, best: Candidate) -> tuple[Candidate, Standing]:
        """The anchor, opened; the best version where it is gone."""
        try:
            return self._candidates.open(known.anchor), known
        except CandidateRejected:
            return best, known.anchored(best.number)

    def _barred(self, evaluator: Evaluator, version: Candidate, zero: Candidate) -> tuple[str, ...]:
        """Without anything two clicks away: what else says that retrieval has become worse."""
        own = evaluator.measures(version, self._holdout.window)
        reference = evaluator.measures(zero, self._holdout.window)
        return tuple(
            f"{guard.measure} below version 0's"
            for guard in self._rule.guards
            if guard.measure in own and fallen(replace(self._rule, guards=(guard,)), own, reference)
        )
