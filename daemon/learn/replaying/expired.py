"""Are the records of a line still in the log? Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from daemon.exits import EX_DATAERR, UserError
from daemon.versions.lineage import Link


def check_kept(links: Sequence[Link], bounds: Mapping[int, tuple[int, int]], from_version: int) -> None:
    """Raise UserError (data) where records of the links were dropped from the log, with what can be replayed.

    `links`: the versions after `from_version`, oldest first; `bounds`: (earliest, end) by partition.
    """
    lost = [at for at, link in enumerate(links) if _gone(link, bounds)]
    if not lost:
        return
    wanted = _first_wanted([link for link in links if _gone(link, bounds)])
    gone = "; ".join(
        f"partition {p}: offsets {start:,} up to {bounds[p][0]:,}"
        for p, start in sorted(wanted.items())
        if p in bounds and start < bounds[p][0]
    )
    rest = [link.number for link in links[lost[-1] : -1] if link.manifest is not None]
    raise UserError(
        f"records learned after version {from_version} have expired from the log: {gone}",
        f"the oldest kept version from which this can still be replayed: --from {rest[0]}"
        if rest
        else "no version kept on this line stands where the log still holds what came after it",
        EX_DATAERR,
    )


def _gone(link: Link, bounds: Mapping[int, tuple[int, int]]) -> bool:
    """Whether something that was learned for this version is no longer there."""
    return any(start < bounds[p][0] for p, start in _first_wanted([link]).items() if p in bounds)


def _first_wanted(links: Sequence[Link]) -> dict[int, int]:
    """The first offset that the links' runs read, by partition."""
    wanted: dict[int, int] = {}
    for link in links:
        for entry in link.schedule:
            if not isinstance(entry, dict):
                partition, start, _ = entry
                wanted[partition] = min(start, wanted.get(partition, start))
    return wanted
