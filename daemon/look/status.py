"""One picture of a running or resting installation: versions, verdicts, the stream's lag, live roles."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import Any

from checkpoints import CheckpointError, Manifest
from daemon.config import Config
from daemon.exits import UserError
from daemon.look.live import RoleStatus, ServeStatus, UpStatus, is_of, status_at, wants_token
from daemon.look.overview import Summary, read_all, summary, version_rows
from daemon.models.actions import look
from daemon.models.decide import in_doubt
from daemon.versions.contents import EXPIRED, counted, records_of
from daemon.versions.reference import reference_of
from daemon.versions.storage import open_for_reading
from streams.partitions import behind_transactions, past_gaps
from streams.source import HeldBack, Source


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """One partition: records the log holds as [earliest, end), and where the newest version stands.

    open_transaction: offset of the first record of a transaction that is open; from there on nobody is given
    anything. None without one.
    """

    partition: int
    earliest: int
    end: int
    position: int | None
    open_transaction: int | None = None

    @property
    def lag(self) -> int:
        """Records that the newest version has not learned; those that retention dropped are not counted."""
        return self.end - max(self.earliest, self.position if self.position is not None else self.earliest)


def lags(
    bounds: Mapping[int, tuple[int, int]],
    positions: Mapping[int, int] | None,
    held: Mapping[int, HeldBack] | None = None,
) -> list[PartitionLag]:
    """Lag per partition of a version that stands at `positions`; None without one. Pure.

    held: what open transactions hold back; it waits too.
    """
    found = []
    for partition, (earliest, end) in sorted(bounds.items()):
        back = (held or {}).get(partition)
        newest, first = (end, None) if back is None else (max(end, back.end), back.first)
        found.append(PartitionLag(partition, earliest, newest, (positions or {}).get(partition), first))
    return found


def dropped(bounds: Mapping[int, tuple[int, int]], positions: Mapping[int, int]) -> list[str]:
    """A line per partition that begins after where the newest version stands: learn will not start. Pure."""
    return [
        f"partition {partition}: {earliest - positions[partition]:,} records were dropped before they were "
        "learned; `tripletd learn --accept-gap --exit-when-caught-up`, run once, continues without them"
        for partition, (earliest, _) in sorted(bounds.items())
        if earliest > positions.get(partition, earliest)
    ]


def collect(config: Config) -> dict[str, Any]:
    """The whole picture: keys checkpoints, versions, newest, best, reference (what version 0 is, a sentence),
    stream, live, not_ready, down.

    Plain data, but for the RoleStatus or None of each role in `live`. elsewhere: role -> checkpoint
    folder, where the port is held by a tripletd that works with another one. down: role -> why it does not
    run, as `up` tells it. locked: roles that did not say how they are, since they want a token.
    """
    picture: dict[str, Any] = {"config": str(config.file) if config.file else None}
    newest = _collect_versions(config, picture)
    _collect_stream(config, newest, picture)
    http, count = config.http, config.shards.count
    roles = {"learn": http.learn_port}
    if count:
        roles = {f"learn-{number}": port for number, port in enumerate(http.learning_ports(count))}
        roles["merge"] = http.merge_port
    roles |= {"validate": http.validate_port, "serve": http.serve_port}
    if config.feed.follow.sources:
        roles["feed"] = http.feed_port
    asked = {role: status_at(http, port) for role, port in roles.items()}
    kinds = {name: name.partition("-")[0] for name in roles}
    found: dict[str, RoleStatus] = {n: one for n, one in asked.items() if one and one.role == kinds[n]}
    running = {n: one for n, one in found.items() if is_of(one, kinds[n], config.checkpoints.path)}
    picture["live"] = {role: running.get(role) for role in roles}
    picture["locked"] = [role for role, one in asked.items() if not one and wants_token(http, roles[role])]
    picture["elsewhere"] = {role: one.checkpoints for role, one in found.items() if role not in running}
    served = running.get("serve")
    if isinstance(served, ServeStatus):
        picture["problems"] += _lacking(config, served)
    picture["problems"] += [
        f"{role}: {why}"
        for role, one in running.items()
        if (why := one.folder_message()) and why not in (one.not_ready or "")
    ]
    picture["not_ready"] = {role: one.not_ready for role, one in running.items()}
    up = status_at(http, http.up_port)
    supervised = up.trouble() if isinstance(up, UpStatus) and is_of(up, "up", config.checkpoints.path) else {}
    picture["down"] = {role: why for role, why in supervised.items() if role not in running}
    if supervised and up is not None and up.not_ready:
        picture["problems"].append(up.not_ready)
    return picture


def _lacking(config: Config, served: ServeStatus) -> list[str]:
    try:
        versions, _ = open_for_reading(config)
        newest = max(versions.versions(), default=-1)
    except (UserError, CheckpointError):
        return []
    found = []
    for alias, one in served.aliases.items():
        if one.version is None:
            continue
        try:
            is_lacking = versions.manifest(one.version).line != one.line_id
        except CheckpointError:
            is_lacking = one.version > newest  # older ones are pruned
        if is_lacking:
            has = f" (its newest is {newest})" if newest >= 0 else ""
            of = f" of line {one.line_id}" if one.line_id else ""
            found.append(
                f"{alias} answers with version {one.version}{of}, which this folder lacks"
                f"{has}: it was emptied, or an older copy was put in its place; put back a newer copy, or "
                "let learn continue there on a new line"
            )
    return found


def _collect_versions(config: Config, picture: dict[str, Any]) -> Manifest | None:
    picture |= {"checkpoints": config.checkpoints.path, "versions": [], "newest": None}
    picture |= _stands(Summary()) | {"problems": [], "reference": ""}
    try:
        store, ledger = open_for_reading(config)
    except UserError as error:
        picture["problems"].append(error.message)
        return None
    found = read_all(store, ledger)
    picture["problems"] += [*found.notes, *in_doubt(look(store, ledger))]
    newest = max(found.manifests, key=lambda one: one.number, default=None)
    rows = version_rows(found.manifests, found.entries, newest.number if newest else None)
    stands = summary(found.entries)
    by_number = {row.number: row for row in rows}
    picture["versions"] = [row.number for row in rows]
    picture["newest"] = asdict(by_number[newest.number]) if newest else None
    row = None if stands.best is None else by_number.get(stands.best)
    picture |= _stands(stands) | {"best": row and asdict(row)}
    reference = reference_of(newest.map) if newest else None
    picture["reference"] = reference.description if reference else ""
    picture["is_own"] = bool(reference and reference.own)
    best = next((one for one in found.manifests if one.number == stands.best), None)
    picture["best_records"] = None if best is None else records_of(best)
    return newest


def _stands(stands: Summary) -> dict[str, Any]:
    verdict = stands.verdict
    return asdict(stands) | {
        "is_better": verdict and verdict.sentence,
        "verdict": verdict and verdict.to_json(),
    }


def _collect_stream(config: Config, newest: Manifest | None, picture: dict[str, Any]) -> None:
    from streams.errors import StreamError, StreamUnavailable

    stream: dict[str, Any] = {"address": config.stream.address, "partitions": [], "lag": None}
    stream["expired"] = 0 if newest is None else counted(newest.counters, EXPIRED)
    picture["stream"] = stream
    try:
        with closing(_opened(config)) as source:
            bounds, held, positions = source.bounds(), source.held_back(), None
            if newest is not None and newest.stream.get("topic_id") != source.identity().topic_id:
                what = f"version {newest.number} learned from another topic of this name"
                picture["problems"].append(f"{what}, so its lag is not known")
            elif newest is not None:
                stands = {partition: at.next_offset for partition, at in newest.positions.items()}
                picture["problems"] += dropped(bounds, stands)
                try:
                    positions = past_gaps(source, stands, bounds)
                except StreamUnavailable:  # too slow to tell which offsets hold records
                    positions = stands
            picture["problems"] += behind_transactions(source.identity().topic, held)
    except StreamError as error:
        picture["problems"].append(str(error))
        return
    found = lags(bounds, positions, held)
    stream["partitions"] = [asdict(one) | {"lag": one.lag} for one in found]
    stream["lag"] = sum(one.lag for one in found)


def _opened(config: Config) -> Source:
    """The training topic; raises the errors of streams, each with its remedy."""
    from streams.open import open_source

    address = config.stream.to_address()
    if address.scheme == "kafka":
        from streams.kafka.preflight import preflight

        preflight(address)
    return open_source(address)
