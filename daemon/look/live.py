"""What running roles say at /status, and the live numbers that the page draws from it.

| name | unit | over |
|---|---|---|
| `learn.events` | events/s, those sent again left out | 10 s |
| `learn.lag_events`, `learn.lag_seconds` | events, of all partitions; seconds, of the last of them | now |
| `learn.loss` | mean hinge loss before the step | 10 s; 60 s where fewer than 100 events came in 10 |
| `learn.dead.REASON` | dead letters since the role began | now |
| `validate.holdout_loss`, `validate.drifts` | of the best version; drifts since the role began | now |
| `serve.requests` | questions/s, single and batches | 10 s |
| `serve.latency_p50`, `serve.latency_p99` | seconds of a single question | 60 s |
| `serve.dead.REASON` | item records refused since the role began | now |
| `feed.records`, `feed.open` | raw records/s; lists that wait for clicks | 10 s; now |
| `serve.fresh_p50.ALIAS`, `serve.fresh_p99.ALIAS` | seconds, event to first answer that used it | 60 s |

A number that nothing is known of is left out. Statuses are of one process, oldest first.
"""

from __future__ import annotations

import ssl
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from http import HTTPStatus
from typing import Annotated, Literal, Self, TypeAlias

from pydantic import BaseModel, Field, TypeAdapter

from checkpoints.versions import LOSS_MESSAGES
from daemon.config.schema import HttpConfig
from daemon.exits import UserError
from daemon.runtime.doors import context_to_ask
from daemon.text import span
from daemon.versions.shards import summed
from streams.foreign_http import BlockingClient, ForeignError, ForeignServer

RATE_SECONDS = 10.0
QUANTILE_SECONDS = 60.0
LEAST_LOSSES = 100
"""Of a mean loss over 10 s: the last few events before a pause would make a spike."""
STANDS_STILL_S = 30.0
"""A newer version that waits longer than this is reported: loading one takes some seconds at most."""
_TIMEOUT_S = 2.0
"""A role whose port refuses is known not to run at once; one on a busy machine takes a while to answer."""


class Distribution(BaseModel):
    """Seconds: `counts[i]` of them are at most `edges[i]`, the last count is of all, `total` their sum."""

    edges: list[float] = []
    counts: list[float] = [0.0]
    total: float = 0.0

    @property
    def count(self) -> float:
        """How many were measured."""
        return self.counts[-1]

    def since(self, before: Distribution) -> Distribution:
        """Those measured after `before` was read of the same process."""
        old = before.counts if before.edges == self.edges else [0.0] * len(self.counts)
        counts = [now - then for now, then in zip(self.counts, old, strict=True)]
        return Distribution(edges=self.edges, counts=counts, total=self.total - before.total)

    def quantile(self, q: float) -> float | None:
        """Linear inside a bucket; in the last, open one its lower edge. None where nothing was measured."""
        if self.count <= 0:
            return None
        wanted, edges, counts = q * self.count, [0.0, *self.edges], [0.0, *self.counts]
        at = max(1, bisect_left(counts, wanted))
        if at == len(edges):
            return edges[-1]
        share = (wanted - counts[at - 1]) / (counts[at] - counts[at - 1])
        return edges[at - 1] + (edges[at] - edges[at - 1]) * share


class _OfRole(BaseModel):
    """`began`: Unix seconds; `not_ready`: why not, null when it is ready. `folder`: how the checkpoint folder
    is lost now (`checkpoints.versions`), "" while it is not; `folder_losses`: how often since it began.
    """

    version: str
    checkpoints: str | None
    began: float
    not_ready: str | None
    folder: str = ""
    folder_losses: int = 0

    def folder_message(self) -> str | None:
        """A message about the checkpoint folder, None where there is nothing to report."""
        if self.folder in LOSS_MESSAGES:
            return LOSS_MESSAGES[self.folder]
        times = "once" if self.folder_losses == 1 else f"{self.folder_losses} times"
        return f"the checkpoint folder was lost {times} since its start" if self.folder_losses else None

    def numbers(self, ago: Self, seconds: float, minute: Self) -> Iterator[tuple[str, float | None]]:
        """Live numbers, from this status, the one `seconds` before it and the one a minute before it."""
        yield from ()


class LearnStatus(_OfRole):
    """The status document of `learn`. Since it began: events by the outcome of their step, their hinge losses
    before it, dead letters by reason. `lag_events`: of all partitions, `lag_seconds`: of the last of them;
    null while they are not known.
    """

    role: Literal["learn"] = "learn"
    parked: bool = False
    events: dict[str, int] = {}
    loss_sum: float = 0.0
    loss_count: int = 0
    lag_events: int | None = None
    lag_seconds: float | None = None
    dead_letters: dict[str, int] = {}

    def line(self) -> str:
        """The state of the role in one line, for a terminal."""
        parked = ", parked" if self.parked else ""
        return f"running{parked}, {sum(self.events.values()):,} events since its start"

    def numbers(self, ago: Self, seconds: float, minute: Self) -> Iterator[tuple[str, float | None]]:
        """Live numbers, from this status, the one `seconds` before it and the one a minute before it."""
        risen = self._learned() - ago._learned()
        yield "events", risen / seconds if seconds > 0 and self.events else None
        yield "lag_events", self.lag_events
        yield "lag_seconds", self.lag_seconds
        came = self.loss_count - ago.loss_count
        since = minute if came < LEAST_LOSSES else ago
        count = self.loss_count - since.loss_count
        yield "loss", (self.loss_sum - since.loss_sum) / count if came > 0 else None
        yield from ((f"dead.{reason}", count) for reason, count in self.dead_letters.items())

    def _learned(self) -> int:
        return sum(count for outcome, count in self.events.items() if outcome != "duplicate")


def together(learners: Mapping[str, LearnStatus | None]) -> LearnStatus | None:
    """What several learners of one topic do together, by their names; None while none answers. Who does not
    answer, or is not ready, is named."""
    there = {name: one for name, one in learners.items() if one is not None}
    if not there:
        return None
    every = list(there.values())
    why = [f"{name}: {one.not_ready}" for name, one in there.items() if one.not_ready]
    why += [f"{name} does not answer" for name in learners if name not in there]
    lags = [one.lag_events for one in every if one.lag_events is not None]
    ages = [one.lag_seconds for one in every if one.lag_seconds is not None]
    return every[0].model_copy(
        update={
            "began": max(one.began for one in every),
            "not_ready": "; ".join(why) or None,
            "parked": any(one.parked for one in every),
            "events": summed([one.events for one in every]),
            "dead_letters": summed([one.dead_letters for one in every]),
            "loss_sum": sum(one.loss_sum for one in every),
            "loss_count": sum(one.loss_count for one in every),
            "lag_events": sum(lags) if lags else None,
            "lag_seconds": max(ages, default=None),
        }
    )


class MergeStatus(_OfRole):
    """The status document of `merge`. `merges`, `failures`: since it began; `unmerged`: records by shard that
    are in its newest version and in no merged one."""

    role: Literal["merge"] = "merge"
    merges: int = 0
    failures: int = 0
    unmerged: dict[str, int] = {}

    def line(self) -> str:
        """The state of the role in one line, for a terminal."""
        failed = f", {self.failures:,} failed" if self.failures else ""
        waiting = sum(self.unmerged.values())
        return f"running, {self.merges:,} versions merged since its start{failed}; {waiting:,} records wait"

    def numbers(self, _ago: Self, _seconds: float, _minute: Self) -> Iterator[tuple[str, float | None]]:
        """Live numbers, from this status alone."""
        yield "unmerged", sum(self.unmerged.values())


class ValidateStatus(_OfRole):
    """The status document of `validate`. `judged` versions and `drifts`: since it began; `holdout_loss`: of
    the best version, null before one was judged.
    """

    role: Literal["validate"] = "validate"
    judged: int = 0
    drifts: int = 0
    holdout_loss: float | None = None

    def line(self) -> str:
        """The state of the role in one line, for a terminal."""
        return f"running, {self.judged} versions judged since its start"

    def numbers(self, _ago: Self, _seconds: float, _minute: Self) -> Iterator[tuple[str, float | None]]:
        """Live numbers, from this status alone."""
        yield "holdout_loss", self.holdout_loss
        yield "drifts", self.drifts


class AliasStatus(BaseModel):
    """What an alias answers with; `freshness`: from events to the first answers that used them.

    `version` is null while it answers nothing; `watermark`: its newest event, Unix seconds; `behind`: for how
    many seconds something newer has been there; `refused`: versions by reason; `line_id`: the line of history
    of the version, "" where it is not known; `order`: in words how it orders and searches, "" where both are
    by its serving form.
    """

    version: int | None = None
    line_id: str = ""
    order: str = ""
    records: int = 0
    watermark: float | None = None
    behind: float = 0.0
    refused: dict[str, int] = {}
    freshness: Distribution = Field(default_factory=Distribution)

    def line(self, now_s: float, note: str = "") -> str:
        """What it answers with, how fresh that is and what was refused, for a terminal. note: about what it
        answers with, put first.
        """
        parts = ["answers nothing yet"]
        if self.version is not None:
            named = f" ({note})" if note else ""
            parts = [f"answers with version {self.version}{named}, {self.records:,} records"]
        if self.behind > STANDS_STILL_S:
            parts.append(f"stands still, though something newer has been there for {span(self.behind)}")
        if self.watermark is not None:
            parts.append(f"newest click in it {span(max(0.0, now_s - self.watermark))} ago")
        if self.freshness.count:
            mean = self.freshness.total / self.freshness.count
            parts.append(f"a click was in an answer after {mean:.2f} s on average")
        refused = ", ".join(f"{reason} {count}" for reason, count in sorted(self.refused.items()) if count)
        return "; ".join([*parts, f"refused: {refused}"] if refused else parts)


class ServeStatus(_OfRole):
    """The status document of `serve`; numbers count from when it began (Unix seconds).

    Objects, those of them in graphs, dead letters of items by reason, requests for neighbours, the latency of
    those with one question.
    """

    role: Literal["serve"] = "serve"
    objects: int = 0
    in_graphs: int = 0
    dead_letters: dict[str, int] = {}
    requests: int = 0
    latency: Distribution = Field(default_factory=Distribution)
    aliases: dict[str, AliasStatus] = {}

    def line(self) -> str:
        """The state of the role in one line, for a terminal."""
        graphs = f", {self.in_graphs:,} of them in graphs" if self.in_graphs else ""
        return f"running, {self.objects:,} objects{graphs}"

    def numbers(self, ago: Self, seconds: float, minute: Self) -> Iterator[tuple[str, float | None]]:
        """Live numbers, from this status, the one `seconds` before it and the one a minute before it."""
        yield "requests", (self.requests - ago.requests) / seconds if seconds > 0 else None
        yield from ((f"dead.{reason}", count) for reason, count in self.dead_letters.items())
        new = {"latency_{}": self.latency.since(minute.latency)}
        for alias, one in sorted(self.aliases.items()):
            before = minute.aliases.get(alias, AliasStatus())
            new[f"fresh_{{}}.{alias}"] = one.freshness.since(before.freshness)
        for name, seconds_taken in new.items():
            yield name.format("p50"), seconds_taken.quantile(0.5)
            yield name.format("p99"), seconds_taken.quantile(0.99)


class FeedStatus(_OfRole):
    """The status document of `feed --follow`; numbers count from when it began.

    Impressions by fate, lists that wait for clicks (`open`), late clicks that were learned (`corrections`),
    what came late by `what`, records left out by reason, what waits by source (bytes of files, records of
    topics), files that cannot be opened (`left_out`) or were cut or vanished (`cut_files`), bytes of
    these that were seen and not read (`missing_bytes`), `watermark`: Unix seconds up to which all came;
    `bot_share`: of the clicks, those that look like a machine's; `examination`: of each rank of which the
    newest lists tell it, relative to the first; `chance_lists`: fed lists that say to be made by chance,
    `explored`: those where chance had placed an object.
    """

    role: Literal["feed"] = "feed"
    records: int = 0
    impressions: dict[str, int] = {}
    open: int = 0
    corrections: int = 0
    late: dict[str, int] = {}
    dropped: dict[str, int] = {}
    ignored: dict[str, int] = {}
    behind: dict[str, int] = {}
    left_out: int = 0
    missing_bytes: int = 0
    cut_files: int = 0
    watermark: float | None = None
    bot_share: float = 0.0
    examination: dict[str, float] = {}
    chance_lists: int = 0
    explored: int = 0

    def line(self) -> str:
        """The state of the role in one line, for a terminal."""
        fed = self.impressions.get("training", 0) + self.impressions.get("holdout", 0)
        lowest = max(self.examination, key=int, default="1")
        examined = lost = ""
        if lowest != "1":
            share = f"{self.examination[lowest]:.2f}"
            examined = f"; rank {lowest} is examined {share} times as often as the first"
        if self.cut_files:
            files = f"{self.cut_files:,} files were truncated or removed before they were read to the end"
            lost = f"; {files}: {self.missing_bytes:,} bytes are missing, and perhaps more"
        if self.left_out:
            lost += f"; {self.left_out:,} files cannot be opened"
        explored = f", {self.explored / fed:.1%} explored" if fed and self.explored else ""
        return (
            f"running, {self.records:,} records, {fed:,} lists fed{explored}, {self.open:,} wait for clicks,"
            f" {self.corrections:,} corrected; {self.bot_share:.1%} of the clicks look like a machine's"
            f"{examined}{lost}"
        )

    def numbers(self, ago: Self, seconds: float, _minute: Self) -> Iterator[tuple[str, float | None]]:
        """Live numbers, from this status and the one `seconds` before it."""
        yield "records", (self.records - ago.records) / seconds if seconds > 0 else None
        yield "open", self.open


class SupervisedRole(BaseModel):
    """A role under `up`. state: starting, running, waiting (to be started again), down, finished; `exit`
    and `reason`: of its last failure, until it holds.
    """

    name: str
    state: str
    exit: str = ""
    reason: str = ""

    def line(self) -> str | None:
        """Why it does not run, for a terminal; None where `up` sees nothing wrong."""
        why = f"{self.reason} ({self.exit if self.exit.startswith('SIG') else f'exit {self.exit}'})"
        if self.state == "down":
            return f"DOWN: {why}"
        return f"failed, is started again: {why}" if self.state in ("waiting", "starting") else None


class UpStatus(_OfRole):
    """What `up` says of the roles that it runs."""

    role: Literal["up"] = "up"
    roles: list[SupervisedRole] = []

    def line(self) -> str:
        """The state of the role in one line, for a terminal."""
        return f"runs {', '.join(one.name for one in self.roles)}"

    def trouble(self) -> dict[str, str]:
        """A line for each role that does not run as it should."""
        return {one.name: line for one in self.roles if (line := one.line()) is not None}


RoleStatus: TypeAlias = LearnStatus | MergeStatus | ValidateStatus | ServeStatus | FeedStatus | UpStatus
Readings: TypeAlias = Sequence[tuple[float, RoleStatus]]
"""(Unix seconds, status) of one process, at least one."""
STATUS: TypeAdapter[RoleStatus] = TypeAdapter(Annotated[RoleStatus, Field(discriminator="role")])


def role_status(
    host: str, port: int, context: ssl.SSLContext | None = None, token: str = ""
) -> RoleStatus | None:
    """What the role at host:port says; None when nobody answers there, or another program does.

    context: of TLS, None where the port has none. token: to be shown, "" for none.
    """
    answer = _answer(host, port, context, token)
    try:
        return None if answer is None else STATUS.validate_json(answer[1])
    except ValueError:
        return None


def _answer(host: str, port: int, context: ssl.SSLContext | None, token: str) -> tuple[int, bytes] | None:
    """Status and body of what is at /status there; None where nobody answers as HTTP does."""
    if port == 0:
        return None
    url = f"{'https' if context else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    with closing(BlockingClient(ForeignServer(url, headers, _TIMEOUT_S, tls=context))) as client:
        try:
            answer = client.ask("GET", "/status")
        except ForeignError:
            return None
    return answer.status, answer.body


def status_at(http: HttpConfig, port: int) -> RoleStatus | None:
    """What the role at a port of this configuration says: through its TLS, with `http.token`."""
    try:
        context = context_to_ask(http)
    except UserError:  # files that are being changed, or are not ours to read
        return None
    return role_status(http.host, port, context, http.token.get_secret_value())


def wants_token(http: HttpConfig, port: int) -> bool:
    """Whether somebody is at a port of this configuration who does not take `http.token`, or none."""
    try:
        answer = _answer(http.host, port, context_to_ask(http), http.token.get_secret_value())
    except UserError:
        return False
    return answer is not None and answer[0] in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)


def is_of(status: RoleStatus, role: str, checkpoints: str) -> bool:
    """Whether it is that role's, with that checkpoint folder: another tripletd may hold the port."""
    return status.role == role and status.checkpoints in (None, checkpoints)


def numbers_of(readings: Readings) -> dict[str, float]:
    """The live numbers of a role that are known, by name."""
    (at, now), (then, before) = readings[-1], _since(readings, RATE_SECONDS)
    numbers = now.numbers(before, at - then, _since(readings, QUANTILE_SECONDS)[1])  # type: ignore[arg-type]
    return {f"{now.role}.{name}": float(value) for name, value in numbers if value is not None}


def _since(readings: Readings, seconds: float) -> tuple[float, RoleStatus]:
    """The newest reading at least `seconds` old, else the oldest."""
    now = readings[-1][0]
    return next((one for one in reversed(readings) if now - one[0] >= seconds), readings[0])
