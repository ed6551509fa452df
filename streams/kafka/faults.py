"""What kafka-python raises, put as the errors of a stream: place, fault, remedy."""

from __future__ import annotations

from kafka import errors

from streams.address import Address
from streams.errors import (
    RecordRefused,
    StreamError,
    StreamRefused,
    StreamUnavailable,
    TopicMissing,
)

_PERMISSION = {
    errors.TopicAuthorizationFailedError: "the topic: grant DESCRIBE, and READ or WRITE, on it",
    errors.GroupAuthorizationFailedError: "the group named like client_id, for noted positions: grant READ",
    errors.ClusterAuthorizationFailedError: "the cluster: grant IDEMPOTENT_WRITE, and CREATE for new topics",
}
_LOGIN = (
    errors.SaslAuthenticationFailedError,
    errors.UnsupportedSaslMechanismError,
    errors.IllegalSaslStateError,
    errors.SecurityDisabledError,
)
_RECORD = (
    errors.MessageSizeTooLargeError,
    errors.RecordListTooLargeError,
    errors.InvalidTimestampError,
    errors.InvalidRecordError,
)
_SETTING = (
    errors.PolicyViolationError,
    errors.InvalidReplicationFactorError,
    errors.InvalidConfigurationError,
    errors.InvalidPartitionsError,
    errors.InvalidTopicError,
    errors.TopicDeletionDisabledError,
)


def stream_error(error: BaseException, address: Address) -> StreamError:
    """The stream's error for one of the client's; anything unknown may pass by itself: StreamUnavailable."""
    if isinstance(error, StreamError):
        return error
    if isinstance(error, errors.UnknownTopicOrPartitionError):
        return missing(address)
    if isinstance(error, _RECORD):
        return RecordRefused(f"{address}: the broker takes no such record: {_words(error)}")
    refused = _refusal(error)
    if refused is not None:
        return StreamRefused(f"{address}: {refused}")
    return StreamUnavailable(
        f"{address}: {_words(error)}; see that the broker runs and can be reached from here"
    )


def _refusal(error: BaseException) -> str | None:
    """Why we are not let in, where that is what happened."""
    for kind, what in _PERMISSION.items():
        if isinstance(error, kind):
            return f"no permission for {what}"
    if isinstance(error, errors.AuthorizationError):
        return f"no permission: {_words(error)}"
    if isinstance(error, _LOGIN):
        return f"the broker refuses the login: {_words(error)}"
    if isinstance(error, errors.UnsupportedCodecError):
        return f"{_words(error)}: install it, or set the topic's compression.type to uncompressed"
    return _words(error) if isinstance(error, _SETTING) else None


def missing(address: Address) -> TopicMissing:
    """There is no such topic."""
    return TopicMissing(
        f"{address}: there is no such topic; create it with `tripletd topics create`, or correct the address"
    )


def _words(error: BaseException) -> str:
    """Class and text of an error, on one line of bounded length."""
    text = " ".join(str(error).split())
    name = type(error).__name__
    text = text if text.startswith(name) else f"{name}: {text}"
    return text.rstrip(": ")[:300]
