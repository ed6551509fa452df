"""Requests and answers of /v1/models/*, as models like those of `schemas`."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Discriminator, Field, Tag

from daemon.serve.http.schemas import NAME, NUMBER, AliasName, Answer, Request


def _kind(raw: Any) -> str:
    return NAME if isinstance(raw, str) else NUMBER


VersionName = Annotated[
    Annotated[int, Field(ge=0), Tag(NUMBER)] | Annotated[AliasName, Tag(NAME)], Discriminator(_kind)
]
"""A version by its number, or by a name such as best."""


class PromoteRequest(Request):
    """Body of POST /v1/models/promote."""

    version: VersionName = Field(description="a number, or a name such as best")
    alias: AliasName = "stable"
    reason: str = Field("asked for over HTTP", max_length=500)
    dry_run: bool = False


class RollbackRequest(Request):
    """Body of POST /v1/models/rollback."""

    alias: AliasName = "stable"
    to: VersionName | None = Field(None, description="where to; left out: the version before")
    reason: str = Field("asked for over HTTP", max_length=500)
    dry_run: bool = False


class PinRequest(Request):
    """Body of POST /v1/models/pin: a name for a version that is to be kept."""

    alias: AliasName
    version: VersionName | None = Field(description="null takes the name away")
    reason: str = Field("asked for over HTTP", max_length=500)
    dry_run: bool = False


class GcRequest(Request):
    """Body of POST /v1/models/gc."""

    dry_run: bool = False


class Moved(Answer):
    """A name moved, or what would be moved (dry run: `entry` is null)."""

    kind: str
    alias: str
    before: int | None
    after: int | None
    by: str
    reason: str
    entry: int | None = Field(description="number of the ledger entry written")
    notes: list[str] = Field(default_factory=list, description="what to know beside")


class Collected(Answer):
    """Versions deleted, or what would be; `size` in bytes; `kept`: version -> why."""

    gone: list[int]
    size: int
    kept: dict[int, list[str]]
    dry_run: bool
