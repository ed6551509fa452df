"""A bucket as a store: Amazon S3 and what speaks its protocol, Google Cloud Storage, Azure; through obstore.

What such a store promises, and what not, decides how objects are written here.

- A put that only creates is one request: it is atomic, and refused where the key is taken. It is never a
  multipart upload, and holds the whole object in memory. So manifests, ledger entries and snapshots are put
  so, and a state, which may be larger than one request takes, goes up in parts under its random name, which
  nobody else writes; the manifest that names it is what commits it.
- An answer may be lost after the object was written, and whoever sends again, be it this module, the client
  library or something on the way, is told that the key is taken: by itself. Another writer in the middle of
  its own put (409) is reported by the same error. So the object is read back: the same bytes are ours, others
  are another writer's, and where there is none the put is tried again.
- A listing may lag behind what was written. Numbers are therefore asked for one by one beyond the last one
  that is listed (`exists`), and no decision to delete rests on a listing alone.
- Nothing can be appended to. A line is added by writing the object again on the condition that it is still
  the one that was read (its ETag).
- Nothing can be locked: a claim decides between writers, also of one host.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import os
import random
import re
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from checkpoints.object_cache import StateCache
from checkpoints.profile import profile_keys
from checkpoints.store import (
    Buffer,
    CheckpointError,
    KeyExists,
    KeyMissing,
    PutResult,
    Unreachable,
    WriteFailed,
    check_key,
)

PART_BYTES = 8 << 20
"""Of an upload or a download: S3 takes at least 5 MiB and at most 10,000 parts, so states up to 80 GB."""
AT_ONCE = 4
"""Parts on their way at the same time."""
TRIES = 8
"""Of a put that only creates, and of a line that is added, before it counts as failed."""
ANSWERS_S = 2.0
"""How long a bucket that answered is taken to be there."""
FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 5.0

Result = TypeVar("Result")

_ADDRESS = re.compile(r"(s3|gs|az)://([A-Za-z0-9][A-Za-z0-9._-]{1,62})(?:/(.*))?", re.DOTALL)
_UNIQUE = re.compile(r"-[0-9a-f]{8}\.safetensors")
"""How a random name ends: of a state, and of derived arrays."""
_NO_BUCKET = re.compile("NoSuchBucket|ContainerNotFound|specified bucket does not exist")
_EXPIRED = re.compile(
    "ExpiredToken|RequestExpired|TokenRefreshRequired|token has expired|RequestTimeTooSkewed"
)
_REFUSED = re.compile(
    "AccessDenied|InvalidAccessKeyId|SignatureDoesNotMatch|InvalidToken|AuthenticationFailed"
    "|401 Unauthorized|403 Forbidden"
)
_BROKEN_OFF = re.compile("response body")
_STANDS = "what is stored stands, and it is tried again"
_TOLD = 300
"""Characters of what a server says that are passed on."""


@dataclass(frozen=True, slots=True)
class ObjectSettings:
    """How a bucket is reached, and where its states are kept locally.

    endpoint: URL of a server that is not the cloud's own; "" leaves it to the environment, as with region.
    timeout_s: longest wait for one answer; tries are repeated for twice as long. cache: folder of fetched
    states, None for none; cache_bytes: most bytes in it.
    """

    endpoint: str = ""
    region: str = ""
    timeout_s: float = 30.0
    cache: Path | None = None
    cache_bytes: int = 8 << 30


def open_object_store(address: str, settings: ObjectSettings) -> ObjectStore:
    """The store at `s3://bucket/prefix`, `gs://...` or `az://container/...`; nothing is looked at yet.

    Raises Unreachable where obstore is not installed, or what the environment says of the cloud is not valid;
    ValueError for an address that is none.
    """
    found = _ADDRESS.fullmatch(address)
    if found is None:
        raise ValueError(
            f"{address}: expected s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or az://CONTAINER/PREFIX"
        )
    prefix = (found[3] or "").strip("/")
    if prefix:
        check_key(prefix)
    return ObjectStore(f"{found[1]}://{found[2]}", prefix, settings)


class ObjectStore:
    """Objects under `prefix` of a bucket. Safe to share between threads.

    Reads raise Unreachable, puts WriteFailed, where the server does not answer or refuses: both name the
    place and the remedy, and a later call may succeed.
    """

    def __init__(self, bucket: str, prefix: str, settings: ObjectSettings) -> None:
        self._bucket, self._prefix, self._settings = bucket, prefix, settings
        self._api, self._client = _client(os.getpid(), bucket, settings)
        self._answered_at = -ANSWERS_S
        self._cache = None
        if settings.cache is not None:
            self._cache = StateCache(settings.cache, settings.cache_bytes)

    @property
    def place(self) -> str:
        """The address."""
        return f"{self._bucket}/{self._prefix}".rstrip("/")

    def at(self, prefix: str) -> ObjectStore:
        """The store of what is below `prefix` of this one."""
        return ObjectStore(self._bucket, self._path(prefix.strip("/")), self._settings)

    def put_new(self, key: str, chunks: Iterable[Buffer], durable: bool = True) -> PutResult:
        """See `checkpoints.store.BlobStore`.

        What has a random name and is larger than a part is not held in memory: a few parts of it are.
        """
        path = self._path(key)
        meter = _Meter(chunks)
        if not _UNIQUE.search(key):
            self._create(path, b"".join(meter))
            return meter.result()
        head = list(itertools.takewhile(lambda _: meter.size < PART_BYTES, meter))
        if meter.size < PART_BYTES:
            self._create(path, b"".join(head))
            return meter.result()
        if self.exists(key):
            raise KeyExists(key, "is taken")
        self._upload(path, itertools.chain(head, meter.last(), meter))
        return self._arrived(path, meter.result())

    def open(self, key: str) -> BinaryIO:
        """See `checkpoints.store.BlobStore`. The whole object, in memory."""
        return io.BytesIO(self.get(key))

    def open_verified(self, key: str, size: int, sha256: str) -> BinaryIO:
        """See `checkpoints.store.VerifyingStore`: from the cache, fetched into it where it is not there."""
        path = self._path(key)
        if self._cache is not None:
            with suppress(OSError):  # a full disk, a folder of another user: the bucket has it
                return self._cache.open(sha256, size, lambda: self._fetch(path, size), f"{self.place}/{key}")
        return io.BytesIO(b"".join(self._fetch(path, size)))

    def forget(self, sha256: str) -> None:
        """See `checkpoints.store.VerifyingStore`."""
        if self._cache is not None:
            self._cache.forget(sha256)

    def get(self, key: str) -> bytes:
        """See `checkpoints.store.BlobStore`."""
        return self._read(self._path(key))[0]

    def exists(self, key: str) -> bool:
        """See `checkpoints.store.LateListing`."""
        path = self._path(key)
        try:
            self._asked(path, lambda: self._api.head(self._client, path))
        except KeyMissing:
            return False
        return True

    def list(self, prefix: str = "") -> list[str]:
        """See `checkpoints.store.BlobStore`; it may lag behind what was written."""
        folder = prefix.rpartition("/")[0]
        start = "/".join(part for part in (self._prefix, folder) if part)
        cut = len(self._prefix) + 1 if self._prefix else 0

        def listed() -> list[str]:
            pages = self._api.list(self._client, prefix=start or None)
            return [meta["path"][cut:] for page in pages for meta in page]

        try:
            found = self._read_again(f"{start}/", listed)
        except KeyMissing:
            return []
        return sorted(key for key in found if key.startswith(prefix))

    def delete(self, key: str, durable: bool = True) -> None:
        """See `checkpoints.store.BlobStore`."""
        path = self._path(key)
        try:
            self._read_again(path, lambda: self._api.delete(self._client, path))  # as well twice as once
        except KeyMissing:
            return
        except Unreachable as error:
            raise _as_write(error) from error

    def append_line(self, key: str, line: bytes) -> None:
        """See `checkpoints.store.BlobStore`. The whole object is written again: for objects of a few MiB."""
        path, last = self._path(key), None
        wanted, before = b"", ""
        for pause in _pauses(TRIES):
            try:
                try:
                    data, version = self._read(path)
                except KeyMissing:
                    self._create(path, line + b"\n")
                    return
                if wanted and data == wanted and str(version.get("e_tag")) != before:
                    return  # the answer to the last try was lost
                torn = b"" if not data or data.endswith(b"\n") else b"\n"
                wanted, before = data + torn + line + b"\n", str(version.get("e_tag"))
                self._put(path, wanted, version)
                return
            except (WriteFailed, Unreachable, _Changed, KeyExists) as error:
                last = error
                if not _is_passing(error):
                    break
                time.sleep(pause)
        raise WriteFailed(f"{self.place}/{key}", f"cannot be added to: {_why(last)}", _remedy(str(last)))

    def below(self, path: str) -> dict[str, tuple[int, str]]:
        """Size and ETag of the object at a path of the bucket and of all in the folder of that name, by path;
        `path` need not be a key. Raises Unreachable.
        """

        def listed() -> dict[str, tuple[int, str]]:
            found = [meta for page in self._api.list(self._client, prefix=path or None) for meta in page]
            with suppress(FileNotFoundError):
                found.append(self._api.head(self._client, path))
            return {meta["path"]: (meta["size"], str(meta["e_tag"])) for meta in found if meta["size"]}

        return self._read_again(path, listed)

    def pieces(self, path: str, size: int) -> Iterator[bytes]:
        """The bytes of the object at a path of the bucket, in order. Raises KeyMissing, Unreachable."""
        return self._fetch(path, size)

    def is_there(self) -> bool:
        """Whether the bucket answers now, or did a moment ago."""
        if time.monotonic() - self._answered_at < ANSWERS_S:
            return True
        try:
            self.get("versions/is-the-bucket-there")
        except KeyMissing:
            return True
        except CheckpointError:
            return False
        return True

    def sweep(self) -> int:
        """0: nothing is listed before it is whole. Parts of broken uploads are for the bucket's own rule."""
        return 0

    def _path(self, key: str) -> str:
        check_key(key)
        return f"{self._prefix}/{key}" if self._prefix else key

    def _told(self, path: str) -> str:
        return f"{self._bucket}/{path}"

    def _create(self, path: str, data: bytes) -> None:
        """Put `data` where nothing is. Raises KeyExists where another writer's object is, WriteFailed."""
        last: CheckpointError | None = None
        for pause in _pauses(TRIES):
            try:
                self._put(path, data, "create")
                return
            except _Taken as error:
                last = error
            except WriteFailed as error:
                if not _is_passing(error):
                    raise
                last = error
            try:
                found = self._read(path)[0]
            except KeyMissing:
                pass  # another put was on its way, and may have failed
            except Unreachable as error:
                last = error
            else:
                if found == data:
                    return
                raise KeyExists(self._told(path), "is taken")
            time.sleep(pause)
        raise WriteFailed(self._told(path), f"cannot be written: {_why(last)}", _remedy(str(last)))

    def _put(self, path: str, data: bytes, mode: Any) -> None:
        """One put. Raises _Taken, _Changed, WriteFailed."""
        try:
            self._asked(path, lambda: self._api.put(self._client, path, data, mode=mode, use_multipart=False))
        except KeyMissing as error:  # of a conditional put on what is gone
            raise _Changed(self._told(path), "is gone") from error
        except Unreachable as error:
            raise _as_write(error) from error

    def _upload(self, path: str, parts: Iterable[Buffer]) -> None:
        def put() -> object:
            return self._api.put(
                self._client, path, iter(parts), chunk_size=PART_BYTES, max_concurrency=AT_ONCE
            )

        try:
            self._asked(path, put)
        except (Unreachable, KeyMissing) as error:
            raise _as_write(error) from error

    def _arrived(self, path: str, put: PutResult) -> PutResult:
        """`put`, once the server says that it has so many bytes. Raises WriteFailed."""
        try:
            size = self._asked(path, lambda: self._api.head(self._client, path))["size"]
        except (Unreachable, KeyMissing) as error:
            raise _as_write(error) from error
        if size != put.size:
            raise WriteFailed(self._told(path), f"has {size} of {put.size} bytes after the upload", _STANDS)
        return put

    def _read(self, path: str) -> tuple[bytes, dict[str, Any]]:
        def read() -> tuple[bytes, dict[str, Any]]:
            found = self._api.get(self._client, path)
            meta = found.meta
            named = {"e_tag": meta["e_tag"], "version": meta["version"]}
            return bytes(found.bytes()), {name: value for name, value in named.items() if value is not None}

        try:
            return self._read_again(path, read)
        except (_Taken, _Changed) as error:  # no answer to a question
            raise Unreachable(error.place, error.problem, _remedy("")) from error

    def _fetch(self, path: str, size: int) -> Iterator[bytes]:
        """The object in parts, in order, a few of them on their way; also what is longer than `size`."""

        def part(begin: int) -> bytes:
            return self._read_again(
                path, lambda: bytes(self._api.get_range(self._client, path, start=begin, length=PART_BYTES))
            )

        begins = iter(range(0, max(size, 1), PART_BYTES))
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="fetch") as pool:
            waiting = [pool.submit(part, begin) for begin in itertools.islice(begins, AT_ONCE)]
            while waiting:
                piece = waiting.pop(0).result()
                waiting.extend(pool.submit(part, begin) for begin in itertools.islice(begins, 1))
                yield piece

    def _read_again(self, path: str, call: Callable[[], Result]) -> Result:
        """`_asked`, once more where an answer broke off: the client asks again only where none came. For what
        may be done twice.
        """
        for pause in _pauses(TRIES - 1):
            try:
                return self._asked(path, call)
            except Unreachable as error:
                if not _BROKEN_OFF.search(error.problem):
                    raise
                time.sleep(pause)
        return self._asked(path, call)

    def _asked(self, path: str, call: Callable[[], Result]) -> Result:
        """The answer of the server. Raises KeyMissing, Unreachable, _Taken, _Changed."""
        errors = self._api.exceptions
        try:
            answer = call()
        except FileNotFoundError as error:
            if _NO_BUCKET.search(str(error)):
                raise _unreachable(self._told(path), error) from error
            self._answered_at = time.monotonic()
            raise KeyMissing(self._told(path), "there is no such object") from None
        except errors.AlreadyExistsError as error:
            raise _Taken(self._told(path), _why(error) or "is taken") from error
        except errors.PreconditionError as error:
            raise _Changed(self._told(path), _why(error) or "was changed meanwhile") from error
        except (errors.BaseError, OSError) as error:
            raise _unreachable(self._told(path), error) from error
        self._answered_at = time.monotonic()
        return answer


class _Taken(KeyExists):
    """A create was refused: by another writer's object, one on its way, or its own."""


class _Changed(CheckpointError):
    """A conditional put was refused: the object is not the one that was read."""

    kind = "changed"
    retriable = True


class _Meter:
    """Passes chunks on and takes their size and hash; may be gone through in several goes."""

    def __init__(self, chunks: Iterable[Buffer]) -> None:
        self._chunks = iter(chunks)
        self._digest = hashlib.sha256()
        self._last: memoryview | None = None
        self.size = 0

    def __iter__(self) -> Iterator[memoryview]:
        return self

    def __next__(self) -> memoryview:
        view = memoryview(next(self._chunks)).cast("B")
        self._digest.update(view)
        self.size += len(view)
        self._last = view
        return view

    def last(self) -> list[memoryview]:
        """The newest chunk: the one that `takewhile` took and did not pass on."""
        return [] if self._last is None else [self._last]

    def result(self) -> PutResult:
        """Of all chunks that were passed on."""
        return PutResult(self.size, self._digest.hexdigest())


def _pauses(tries: int) -> Iterator[float]:
    """Seconds to wait after each try, doubling, of random length so that two writers do not meet again."""
    for number in range(tries):
        yield min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2**number) * random.uniform(0.5, 1.0)  # noqa: S311


def _unreachable(place: str, error: Exception) -> Unreachable:
    return Unreachable(place, _why(error), _remedy(str(error)))


def _as_write(error: CheckpointError) -> WriteFailed:
    return WriteFailed(error.place, f"cannot be written: {error.problem}", error.remedy)


def _is_passing(error: CheckpointError) -> bool:
    text = str(error)
    return not (_NO_BUCKET.search(text) or _EXPIRED.search(text) or _REFUSED.search(text))


def _why(error: Exception | None) -> str:
    """What a server said, in one line that is not too long; its XML is cut down to code and message."""
    if isinstance(error, CheckpointError):
        return error.problem
    text = " ".join(str(error).split())
    said = [found[1] for found in re.finditer(r"<(?:Code|Message)>(.*?)</", text)]
    if said:
        return ": ".join(said)[:_TOLD]
    return (text.rpartition("Debug source:")[0] or text)[:_TOLD].rstrip(" :")


def _remedy(text: str) -> str:
    if _NO_BUCKET.search(text):
        return "create the bucket, or name another one in checkpoints.path"
    if _EXPIRED.search(text):
        renew = "renew them (a profile's file is read again each minute)"
        return f"the credentials have expired: {renew}; {_STANDS}"
    if _REFUSED.search(text):
        return (
            "give this process credentials that may list, get, put and delete there (AWS_ACCESS_KEY_ID and "
            f"AWS_SECRET_ACCESS_KEY, a profile, or the instance's role); {_STANDS}"
        )
    return f"check the network, checkpoints.endpoint and checkpoints.region; {_STANDS}"


@lru_cache(maxsize=64)
def _client(_process: int, bucket: str, settings: ObjectSettings) -> tuple[Any, Any]:
    """obstore and its client of a bucket: one for all stores of a process, for its connections."""
    try:
        import obstore
    except ImportError:
        raise Unreachable(
            bucket, "object stores need obstore, which is not installed", 'pip install "tripletd[objects]"'
        ) from None
    scheme, _, name = bucket.partition("://")
    timeout = timedelta(seconds=settings.timeout_s)
    options: dict[str, Any] = {
        "client_options": {
            "timeout": timeout,
            "connect_timeout": min(timeout, timedelta(seconds=5)),
            "allow_http": _endpoint(settings).startswith("http://"),
        },
        "retry_config": {
            "max_retries": 4,
            "retry_timeout": 2 * timeout,
            "backoff": {
                "base": 2,
                "init_backoff": timedelta(seconds=0.1),
                "max_backoff": timedelta(seconds=LONGEST_PAUSE_S),
            },
        },
    }
    try:
        return obstore, _open(scheme, name, settings, options)
    except (obstore.exceptions.BaseError, ValueError, KeyError, TypeError) as error:
        raise Unreachable(bucket, _why(error), "correct what the environment says of this cloud") from error


def _endpoint(settings: ObjectSettings) -> str:
    named = (os.environ.get(name) for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"))
    return settings.endpoint or next(filter(None, named), "")


def _open(scheme: str, name: str, settings: ObjectSettings, options: dict[str, Any]) -> Any:
    from obstore.store import AzureStore, GCSStore, S3Store

    if scheme != "s3":
        opened: tuple[Any, str] = {"gs": (GCSStore, "base_url"), "az": (AzureStore, "endpoint")}[scheme]
        kind, named = opened
        return kind(name, config={named: settings.endpoint} if settings.endpoint else {}, **options)
    region = settings.region or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    config: dict[str, Any] = {"region": region or "us-east-1"}
    if endpoint := _endpoint(settings):
        config["endpoint"] = endpoint
    if (keys := profile_keys()) is not None:
        config["credential_provider"] = keys
    return S3Store(name, **config, **options)
