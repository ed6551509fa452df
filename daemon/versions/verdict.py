"""Is what was learned better for the users? The answer in words, from numbers alone: pure.

One plain sentence comes first, and everything that explains it is in `details`. "Yes" and "no" are said only
where a test or an interval says so; all else is "not known yet". That two rankings do not differ is said only
where the interval of the difference (`ERRORS` standard errors to both sides) lies within what counts as none:
a test that has merely seen little says nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, Self

from daemon.text import measure

YesOrNo = Literal["yes", "no", "not known yet"]
ERRORS = 3.0
"""Standard errors of an interval: wide enough for one that is looked at after every version."""
LARGE_SHARE = 0.2
"""Share of the lists of a single source that is told with the answer."""
ANSWER = "answer"
"""Key of a judgment's measures with the answer in words."""
HIGHER = "clicked_higher"
"""Measure: share of the lists that tell in which clicked objects stand higher than in version 0."""
NAMES: Mapping[str, str] = {
    "map_full": "mAP",
    "p10_full": "P@10",
    HIGHER: "clicked objects stand higher than in your ranking (share of lists, .5 = the same)",
    "map_shown": "mAP inside the shown lists",
    "map_clicks": "mAP by clicks, whole catalog",
    "macro_map_full": "mAP, mean of classes",
    "position_balanced": "better than the shown order (0.5 = the same)",
    "clicked_vs_random": "clicked above random objects (AUC)",
    "unseen_preference": "preferred to your ranking on kinds never learned (0 = the same)",
    "symmetry_index": "symmetry index of W (1 = symmetric)",
    "sparsity": "share of weights that are 0 (SOML)",
}
"""What each measure is called, everywhere it is shown, in order of weight."""
SHORT: Mapping[str, str] = {HIGHER: "clicked higher", "position_balanced": "order of shown lists"}
"""For a line of a log, where a name has no room."""


def short_name(kind: str) -> str:
    """A measure in a line of text."""
    return SHORT.get(kind) or NAMES.get(kind, kind)


@dataclass(frozen=True, slots=True)
class PlainAnswer:
    """An answer, the sentence that says it first, and what explains it, one sentence each."""

    answer: YesOrNo
    sentence: str
    details: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As it stands in a ledger entry."""
        return {"is_better": self.answer, "sentence": self.sentence, "details": list(self.details)}

    @classmethod
    def of(cls, measures: Mapping[str, Any]) -> Self | None:
        """Of a judgment's measures, also of an older release; None where they have none."""
        found, older = measures.get(ANSWER), measures.get("evidence")
        if isinstance(found, Mapping):
            return cls(found["is_better"], str(found["sentence"]), tuple(map(str, found["details"])))
        text = str(older.get("is_better") or "") if isinstance(older, Mapping) else ""
        answer: YesOrNo = "no" if text.startswith("no:") else "not known yet"
        answer = "yes" if text.startswith("yes") else answer
        return cls(answer, text[:1].upper() + text[1:]) if text else None


def _say(answer: YesOrNo, why: str, *details: str) -> PlainAnswer:
    return PlainAnswer(answer, f"{answer.capitalize()}: {why}", details)


@dataclass(frozen=True, slots=True)
class JudgedGain:
    """Mean of a measure over judged queries, of the version that would be served and of version 0, with the
    standard error of the mean difference. least: what counts as a gain.
    """

    value: float
    reference: float
    error: float
    queries: int
    least: float = 0.0


def by_judgments(served: int, gain: JudgedGain) -> PlainAnswer:
    """served: the best version, 0: none. gain: of it, else of the newest."""
    reached, before = measure(gain.value), measure(gain.reference)
    numbers = f"mAP {reached} against {before} on {gain.queries:,} judged queries"
    low = gain.value - gain.reference - ERRORS * gain.error
    high = gain.value - gain.reference + ERRORS * gain.error
    span = f"the difference lies between {low:+.3f} and {high:+.3f}"
    if served and low > 0:
        return _say("yes", f"better than your ranking. {numbers}", f"{span} (version {served})")
    if high < 0:
        still = f"; version {served} is served" if served else ""
        return _say("no", f"your ranking is better. {numbers}{still}", span)
    if -gain.least <= low and high <= gain.least:
        return _say("no", f"no difference from your ranking. {numbers}", span)
    return _say("not known yet", f"{numbers}; {span}")


def by_mean(name: str, served: int, value: float, reference: float) -> PlainAnswer:
    """By the mean of a measure. served: the best version, 0: none; value: its, else the newest one's."""
    numbers = f"{name} {measure(value)} against {measure(reference)}"
    if served:
        return _say("yes", f"better than your ranking. {numbers}", f"version {served}")
    return _say("not known yet", numbers)


def by_keys(learned: int, judged: int) -> PlainAnswer:
    """learned: keys whose own model was shown to be better, of those judged."""
    if learned:
        return _say("yes", f"better than your ranking for {learned:,} of {judged:,} judged keys")
    return _say("not known yet", f"no model of {judged:,} judged keys was shown to be better")


@dataclass(frozen=True, slots=True)
class SourceShare:
    """How many of the lists of a window, `of` in all, the source with the most gave, and how many of them
    count."""

    lists: int
    of: int
    counted: int

    @property
    def share(self) -> float:
        """Of all lists."""
        return self.lists / self.of

    @property
    def sentence(self) -> str:
        """In words; empty where it is no large share, or all lists are of this source."""
        if not LARGE_SHARE < self.share < 1:
            return ""
        some = "" if self.counted == self.lists else f", of which {self.counted:,} in {self.lists:,} count"
        return f"one source gave {100 * self.share:.0f} % of the lists{some}"


@dataclass(frozen=True, slots=True)
class ByClicks:
    """What clicks say. served: the best version after the newest was judged, 0: none; proven: the last that
    was shown to be better. fell: the version that lost to version 0 just now, 0: none.

    found: of the always-valid test against version 0 (`daemon.validate.evidence.Finding`). mean, error: of
    the differences, margin: what counts as none. higher: share of the lists where clicked objects stand
    higher, None: not known. lists: taken so far, trained and drafted: those that were learned from later, and
    made by two versions. guards: what says surely that the newest is worse. missing: lists that are still
    needed, about. order: by what given lists are ordered better than in the user's own ranking, "": nothing
    is shown to; top: how many of its objects are re-ranked then. reach: whether a version was shown to be
    better in its serving form. silent: the version that ranked these lists, so their order says nothing about
    it; 0: none. strongest: of the sources of these lists.
    """

    served: int
    newest: int
    found: str
    proven: int = 0
    fell: int = 0
    mean: float = 0.0
    error: float = 1.0
    margin: float = 0.0
    higher: float | None = None
    lists: int = 0
    trained: int = 0
    drafted: int = 0
    guards: tuple[str, ...] = ()
    missing: int | None = None
    order: str = ""
    top: int = 0
    reach: bool = True
    alpha: float = 0.05
    silent: int = 0
    promoted: bool = False
    strongest: SourceShare | None = None

    @property
    def is_same(self) -> bool:
        """Whether the interval of the mean difference lies within what counts as none."""
        return abs(self.mean) + ERRORS * self.error <= self.margin

    @property
    def unit(self) -> str:
        """What is counted: all lists, where those that are learned from are bet on, too."""
        return "lists" if self.trained else "held-out lists"


def by_clicks(seen: ByClicks) -> PlainAnswer:
    """The answer by clicks, and whether a single source gave many of the lists."""
    answer, source = _by_clicks(seen), "" if seen.strongest is None else seen.strongest.sentence
    return replace(answer, sentence=f"{answer.sentence}; {source}") if source else answer


def _by_clicks(seen: ByClicks) -> PlainAnswer:
    held = f", {seen.lists - seen.trained:,} of them held out" if seen.trained else ""
    drafted = f", {seen.drafted:,} of them interleaved" if seen.drafted else ""
    details = [f"{seen.lists:,} {seen.unit} so far{held}{drafted}"] if seen.lists else []
    ask = ""
    if seen.silent:
        alias = "stable" if seen.served else "latest"
        ask = (
            f"version {seen.silent} makes these lists itself, so that their order cannot say whether it is "
            f"better: with own and {alias} in serve.aliases, ask some questions with interleave=own,{alias}"
        )
    if seen.fell:
        return _say("no", f"version {seen.fell} lost to your ranking, which is served again", *details)
    higher = ""
    if seen.higher is not None:
        higher = f". Clicked objects stand higher in {100 * seen.higher:.0f} of 100 held-out lists"
    if seen.served and seen.order and not seen.reach:
        details.insert(0, f"version {seen.served} orders by {seen.order}, error at most {seen.alpha:g}")
        finds = "finds what it orders" if seen.top > 1 else "searches, as it is"
        details.append(f"not shown to search the catalog better: your own ranking {finds}")
        what = f"the first {seen.top:,} objects of your ranking" if seen.top > 1 else "given lists"
        return _say("yes", f"it orders {what} better{higher}", *details)
    if seen.served:
        return _better(seen, higher, details, ask)
    return _not_better(seen, higher, details, ask)


def _better(seen: ByClicks, higher: str, details: list[str], ask: str) -> PlainAnswer:
    proven = seen.proven or seen.served
    details.insert(0, f"version {proven} is shown to be better, error at most {seen.alpha:g}")
    if seen.proven and seen.proven != seen.served:
        details.append(f"nothing shows that version {seen.served}, which is best now, is worse")
    if seen.order:
        details.append(f"given lists are ordered by {seen.order}")
    if not seen.promoted and seen.served != seen.newest:
        why = "; ".join(seen.guards) or "users prefer what came before it"
        details.append(f"not so the newest, version {seen.newest}: {why}")
    return _say("yes", f"better than your ranking{higher}", *details, *([ask] if ask else []))


def _not_better(seen: ByClicks, higher: str, details: list[str], ask: str) -> PlainAnswer:
    if seen.guards:
        return _say("no", "; ".join(seen.guards), *details)
    if seen.found == "inferior":
        return _say("no", f"users prefer your ranking{higher}", *details)
    if seen.is_same:
        low, high = seen.mean - ERRORS * seen.error, seen.mean + ERRORS * seen.error
        details.append(f"the difference lies between {low:+.4f} and {high:+.4f}, below {seen.margin:.4f}")
        return _say("no", f"no difference from your ranking in the shown lists{higher}", *details)
    return _say("not known yet", ask or _open(seen) + higher, *details)


def _open(seen: ByClicks) -> str:
    if seen.missing is not None:
        return f"about {seen.missing:,} more {seen.unit} are needed"
    lists = f"{seen.lists:,} {seen.unit}"
    return f"{lists} are not enough to tell" if seen.lists else "nothing was compared yet"


NOT_SHOWN = "not shown to be better than your ranking"
"""Shown next to an alias that serves a version other than the best."""


def is_unproven(version: int | None, best: int | None, *, steps: bool = False) -> bool:
    """Whether what answers is neither version 0 nor the best version; steps: with steps learned since it."""
    return version is not None and (steps or version not in (0, best))


STOPPED = "stopped"
"""Key of the measures of a STOP: the fields of `Stopped`."""


@dataclass(frozen=True, slots=True)
class Stopped:
    """Why learning was stopped, and when it is tried again.

    events: learned since the last gain, versions: judged since then. gain: what counts as one, 0: what clicks
    prove. wait: new events after which it is tried again, 0: never by itself; trials: without a gain before.
    at: events learned then; end: records that the training topic had then.
    """

    events: int
    versions: int
    gain: float = 0.0
    wait: int = 0
    trials: int = 0
    at: int = 0
    end: int = 0

    @property
    def reason(self) -> str:
        """In words."""
        gain = f"no gain of {f'{self.gain:g}'.removeprefix('0')}" if self.gain else "no gain"
        return f"{gain} in {self.events:,} events and {self.versions:,} judged versions"

    def to_json(self) -> dict[str, Any]:
        """As it stands in the measures."""
        return {STOPPED: asdict(self)}

    @classmethod
    def from_json(cls, measures: Mapping[str, Any]) -> Self | None:
        """The inverse; None for a STOP that somebody else, or an older release, gave."""
        found = measures.get(STOPPED)
        try:
            return cls(**found) if isinstance(found, Mapping) else None
        except TypeError:
            return None

    def came(self, end: int) -> int:
        """New records since the STOP, where the topic ends there now."""
        return max(0, end - self.end)
