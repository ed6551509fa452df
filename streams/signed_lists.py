"""The id of a list that was made by chance: it says how, and proves it.

The server that made the list signs its id; the list comes back with its clicks under that id, and only what
was signed is believed. The id is `tdl1.` and, in base64url without padding, a msgpack list of time (ms),
nonce, teams (two bits each), how many there are, name, version and records of each model, and where there is
one the explored slot with how many objects could have stood there; then the first 12 bytes of an HMAC-SHA256.
That is taken over this list and what the id leaves out because the record brings it: the query, the objects
in their order, and the key of the model. So an id fits its own list alone, and is short: 97 characters for
ten objects under `stable` and `latest`, within the 100 that OpenSearch's schema indexes of a `query_id`. 12
bytes are enough where each guess has to be fed to be tried (RFC 2104, section 5, wants 10 at least).
"""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgpack

from streams import poison
from streams.codec import draft_of_fields
from streams.event import Draft, Impression, ObjectRef
from streams.limits import MAX_TEXT_BYTES, MAX_TS
from streams.partitions import route_key
from streams.poison import Poison

PREFIX = "tdl1."
NONCE_BYTES = 3
"""Tells lists apart that were made in the same millisecond, of the same objects, for the same query."""
MAC_BYTES = 12
LONGEST_ID = MAX_TEXT_BYTES - 32
"""Bytes of the longest id: the ids of events are made of it, with two ranks."""

_DOMAIN = b"tripletd.list/1\0"
_MODEL_FIELDS = 3


class BadSignature(Exception):
    """The id is not one that was signed for this list; the message says what does not fit."""


@dataclass(frozen=True, slots=True)
class SignedList:
    """What an id says: when the list was made (ms since the epoch), and how."""

    ts: int
    draft: Draft


def is_signed(name: str) -> bool:
    """Whether an impression's id claims to be of this kind."""
    return name.startswith(PREFIX)


def explored_chance(shown: int, eligible: int) -> float:
    """The probability that one of `eligible` objects came to one of `shown` ranks, each as likely."""
    return 1.0 / (shown * eligible)


def sign_list(
    secret: bytes,
    said: SignedList,
    query: ObjectRef,
    shown: Sequence[str],
    *,
    key: str | None = None,
    eligible: int = 0,
    nonce: bytes,
) -> str:
    """The id of a list of object ids, made as `said` for this query and the model of this key.

    eligible: how many objects could have stood in the explored slot, where there is one. Raises ValueError
    for an id that would be longer than `LONGEST_ID`: too many objects under too long names.
    """
    draft, teams = said.draft, said.draft.teams
    packed = sum(team << (2 * rank) for rank, team in enumerate(teams)).to_bytes(
        -(-len(teams) // 4), "little"
    )
    fields: list[Any] = [said.ts, nonce, packed, len(teams)]
    for model in draft.models:
        fields += [model.name, model.version, model.records]
    if draft.explored is not None:
        fields += [draft.explored, eligible]
    payload = msgpack.packb(fields)
    made = payload + _mac(secret, payload, query, shown, key)
    name = PREFIX + base64.urlsafe_b64encode(made).rstrip(b"=").decode()
    if len(name) > LONGEST_ID:
        raise ValueError(f"an id of {len(name)} characters, at most {LONGEST_ID} are taken")
    return name


def read_signed(secret: bytes, impression: Impression) -> SignedList:
    """What the id of an impression says, once it is sure that it was signed for it. Raises BadSignature."""
    payload, mac = _parted(impression.id)
    shown = [ref.id or "" for ref in impression.shown]
    asked = _asked(impression.query)
    if not any(hmac.compare_digest(mac, _mac(secret, payload, one, shown, impression.key)) for one in asked):
        raise BadSignature("it was not signed with this key for this query and these objects in this order")
    try:
        said = _read(msgpack.unpackb(payload), len(shown))
    except (ValueError, TypeError, IndexError, Poison, msgpack.UnpackException) as error:
        raise BadSignature(f"what was signed cannot be read: {error}") from None
    return said


def _asked(query: ObjectRef) -> list[ObjectRef]:
    """As what it may have been asked: an object that is logged with id and features, by either."""
    if query.id is None or query.features() is None:
        return [query]
    return [query, replace(query, id=None)]


def _parted(name: str) -> tuple[bytes, bytes]:
    text = name.removeprefix(PREFIX).encode("utf-8", "surrogatepass")
    try:
        made = base64.b64decode(text + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise BadSignature("the id is not base64url") from None
    if base64.urlsafe_b64encode(made).rstrip(b"=") != text:  # the last character has bits to spare
        raise BadSignature("the id is not as it was written")
    return made[:-MAC_BYTES], made[-MAC_BYTES:]


def _mac(secret: bytes, payload: bytes, query: ObjectRef, shown: Sequence[str], key: str | None) -> bytes:
    mac = hmac.new(secret, _DOMAIN, "sha256")
    by_id = b"i" if query.id is not None else b"x"
    objects = [name.encode("utf-8", "surrogatepass") for name in shown]
    for part in (payload, by_id, route_key(query), (key or "").encode(), *objects):
        mac.update(len(part).to_bytes(8, "little"))
        mac.update(part)
    return mac.digest()[:MAC_BYTES]


def _read(fields: list[Any], shown: int) -> SignedList:
    ts, _, packed, count, *rest = fields
    explored = rest[len(rest) - len(rest) % _MODEL_FIELDS :]
    named = rest[: len(rest) - len(explored)]
    models = [named[at : at + _MODEL_FIELDS] for at in range(0, len(named), _MODEL_FIELDS)]
    if count != shown or type(ts) is not int or not 0 <= ts <= MAX_TS:
        raise Poison(poison.OUT_OF_RANGE, "another number of objects, or no time")
    whole = int.from_bytes(packed, "little")
    drafted: dict[str, Any] = {"models": models, "teams": [whole >> (2 * rank) & 3 for rank in range(count)]}
    if explored:
        drafted["explored"] = [explored[0], explored_chance(shown, explored[1])]
    return SignedList(ts, draft_of_fields(drafted, shown))
