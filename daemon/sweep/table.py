"""The table at the end of a sweep: settings from the best on, and which are not told from it. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from daemon.judging.samples import PlacedVersion, compare, finite
from daemon.judging.versions import COMPARED, PREFERENCE, PREFERENCE_ERROR
from daemon.sweep.grid import Setting, toml_of, varied
from daemon.sweep.results import SettingResult


@dataclass(frozen=True, slots=True)
class SweepRow:
    """A setting in its place. over_own: by how much it is above the user's own ranking, version 0."""

    setting: Setting
    result: SettingResult
    placed: PlacedVersion
    over_own: float


def rows_of(
    settings: Sequence[Setting], results: Sequence[SettingResult | None], measure: str
) -> list[SweepRow]:
    """The best first; without settings that failed, and those that the measure says nothing of."""
    known = [(one, found) for one, found in zip(settings, results, strict=True) if found is not None]
    rows = []
    for placed in compare([found.scores for _, found in known], measure):
        setting, result = known[placed.at]
        own = result.zero.samples.get(measure)
        over = math.nan if own is None else placed.score.mean - own.estimate().mean
        rows.append(SweepRow(setting, result, placed, over))
    return rows


def cells(row: SweepRow, keys: Sequence[str]) -> dict[str, Any]:
    """A row by column, plain values."""
    values, placed, measures = row.setting.overrides(), row.placed, row.result.scores.measures
    return {
        **{key: values.get(key) for key in keys},
        **placed.columns(),
        "over_own_ranking": row.over_own,
        PREFERENCE: measures.get(PREFERENCE),
        PREFERENCE_ERROR: measures.get(PREFERENCE_ERROR),
        **{name: measures[name] for name in COMPARED if name in measures and name != PREFERENCE},
        "queries": placed.score.queries,
        "records": row.result.records,
        "seconds": row.result.seconds,
        "version": row.result.version,
        "hash": row.result.hash,
        "folder": row.result.folder,
    }


def lines_of(rows: Sequence[SweepRow]) -> list[dict[str, Any]]:
    """The rows by column, of the keys those that vary."""
    keys = varied([one.setting for one in rows]) or all_keys(rows)
    return [cells(one, keys) for one in rows]


def all_keys(rows: Sequence[SweepRow]) -> list[str]:
    """Every key that a setting names, in order."""
    return list(dict.fromkeys(key for one in rows for key, _ in one.setting.values))


def winner(rows: Sequence[SweepRow]) -> tuple[str, list[str]]:
    """What the table amounts to, a sentence, and the lines of a tripletd.toml for the best setting."""
    best = rows[0]
    near = [one for one in rows[1:] if one.placed.noise]
    if not rows[1:]:
        said = f"{best.setting.name} is the only setting"
    elif not near:
        said = f"{best.setting.name} is better than every other setting"
    else:
        said = (
            f"{best.setting.name} scores highest; {len(near)} of {len(rows) - 1} others are within noise of "
            "it, and any of these may be the best"
        )
    return said, toml_of(best.setting)


def document(
    rows: Sequence[SweepRow], measure: str, failed: Mapping[str, str], more: Mapping[str, Any]
) -> dict[str, Any]:
    """Everything as one JSON document. failed: by setting, why."""
    keys = all_keys(rows)
    said, lines = winner(rows) if rows else ("no setting could be judged", [])
    return {
        "measure": measure,
        "settings": [finite(cells(one, keys)) for one in rows],
        "failed": dict(failed),
        "conclusion": said,
        "toml": lines,
        **more,
    }
