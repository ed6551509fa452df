"""Where a learner of the crash tests works: one stream, one checkpoint folder, one configuration.

The learner and its view are a `Case`: a new learner is one more line in `CASES`, and all crash tests run it.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from checkpoints.ledger import Ledger
from checkpoints.local import LocalStore
from checkpoints.manifest import Manifest
from checkpoints.object_store import ObjectStore
from checkpoints.store import BlobStore
from checkpoints.versions import VersionStore
from streams.open import open_source
from streams.partitions import TopicLimits
from streams.source import Address, parse_address
from tests.harness.topics import create_topics

DIM = 60
DENSE_VIEW = f'kind = "dense"\ndim = {DIM}\nmap = "standardise"'
SPARSE_VIEW = f'kind = "sparse"\ndim = {DIM}\nmap = "unit"'


@dataclass(frozen=True)
class Case:
    """A learner by its [learner] table, the view it learns from, and further sections, all as TOML."""

    name: str
    learner: str
    view: str
    sections: str = ""

    @property
    def sparse(self) -> bool:
        return 'kind = "sparse"' in self.view

    def key(self, number: int) -> str | None:
        """Whose model learns an event: of five keys, where the case has one model per key."""
        return f"tenant {number * number % 5}" if "[keys]" in self.sections and number % 9 else None

    def __str__(self) -> str:
        return self.name


SPARSE = Case("sparse", "C = 0.1", SPARSE_VIEW)
DENSE = Case("dense", "C = 0.1", DENSE_VIEW)
SYMMETRIC = Case("symmetric", 'C = 0.1\nsymmetric = "online"', SPARSE_VIEW)
PROJECTED = Case("projected", 'C = 0.1\nsymmetric = "online"\npsd_every = 7', DENSE_VIEW)
CAPPED = Case("capped", "C = 0.1", SPARSE_VIEW, "[caps]\nwindow = 40\nsource = 3.0\nitem = 0.5")
EVICTING = '[keys]\nslots = 2\nwhen_full = "evict"\nevict_after = 3'
KEYED = Case("keyed", 'algorithm = "soml-tg"', SPARSE_VIEW, EVICTING)
PULLED = "pull_every = 40\ndecay = 0.25"
OTHERS = (
    Case("oasis-averaged", 'algorithm = "oasis-averaged"', SPARSE_VIEW),
    Case("oasis-diagonal", f'algorithm = "oasis-diagonal"\n{PULLED}', SPARSE_VIEW),
    Case("oasis-sparse", 'algorithm = "oasis-sparse"\nentries = 300', SPARSE_VIEW),
    Case("loreta", 'algorithm = "loreta"\nrank = 4', DENSE_VIEW),
    Case("dissim-oasis", 'algorithm = "dissim-oasis"\npsd_every = 7', DENSE_VIEW),
    Case("lego", f'algorithm = "lego"\n{PULLED}\nradius = 0.2', SPARSE_VIEW),
    Case("lego-pairs", 'algorithm = "lego-pairs"', DENSE_VIEW),
    Case("soml-tg", 'algorithm = "soml-tg"', SPARSE_VIEW),
    Case("soml-da", f'algorithm = "soml-da"\n{PULLED}', DENSE_VIEW),
    Case("oasis-softmax", 'algorithm = "oasis-softmax"\nbatch = 8\nevery = 2\nmemory = 16', DENSE_VIEW),
    Case("omks-maps", f'algorithm = "omks-maps"\n{PULLED}', SPARSE_VIEW),
    Case("oks", 'algorithm = "oks"\ntriplets = 60\nobjects = 64\nevict = "smallest"', SPARSE_VIEW),
    Case("omks", 'algorithm = "omks"\ntriplets = 60\nobjects = 64', DENSE_VIEW),
)
"""The other algorithms, one line each."""

CASES = (SPARSE, DENSE, SYMMETRIC, PROJECTED, CAPPED, KEYED, *OTHERS)


@lru_cache
def _kept(place: ObjectStore) -> VersionStore:
    """One for a bucket: it remembers the manifests that it has read."""
    return VersionStore(place)


@dataclass(frozen=True)
class Site:
    """One topic and one checkpoint folder, with the settings of the learner on them."""

    folder: Path
    address: Address
    checkpoints: Path
    case: Case
    partitions: int
    place: ObjectStore | None = None
    """The bucket that takes the folder's place, where it does."""

    @property
    def _store(self) -> BlobStore:
        return LocalStore(self.checkpoints) if self.place is None else self.place

    @property
    def config(self) -> Path:
        return self.folder / f"{self.checkpoints.name}.toml"

    @property
    def stderr(self) -> Path:
        """Where its learners write what they have to say."""
        return self.folder / f"{self.checkpoints.name}.stderr"

    @property
    def versions(self) -> VersionStore:
        return _kept(self.place) if self.place is not None else VersionStore(self._store)

    @property
    def ledger(self) -> Ledger:
        return Ledger(self._store)

    def newest(self) -> Manifest:
        versions = self.versions
        return versions.manifest(versions.versions()[-1])

    def ends(self) -> dict[int, int]:
        """The end offset of every partition of the topic."""
        with closing(open_source(self.address)) as source:
            return {partition: end for partition, (_, end) in source.bounds().items()}

    def again(self, name: str, **settings: object) -> Site:
        """Another learner of the same case on the same topic, with checkpoints of its own."""
        return make_site(
            self.folder, str(self.address), name, case=self.case, partitions=self.partitions, **settings
        )


def embedded(folder: Path) -> str:
    """The address of an embedded log in `folder`."""
    return f"log:{folder}/clicks.log"


def make_site(
    folder: Path,
    address: str = "",
    name: str = "killed",
    *,
    case: Case = SPARSE,
    partitions: int = 1,
    poll_records: int = 500,
    every: str = "20ms",
    every_events: int = 0,
    keep: int = 100000,
    learner: Mapping[str, object] | None = None,
    place: ObjectStore | None = None,
    endpoint: str = "",
) -> Site:
    """Create the topics where they are missing, and write a configuration; `learner` adds to its table.

    place: a bucket for the versions, reached at `endpoint`; by default they are in a folder.
    """
    site = Site(folder, parse_address(address or embedded(folder)), folder / name, case, partitions, place)
    path = name
    if place is not None:
        path = f'{place.place}"\nendpoint = "{endpoint}"\ntimeout = "5s"\ncache = "{name}.states'
    folder.mkdir(parents=True, exist_ok=True)
    create_topics(site.address, partitions, TopicLimits())
    more = "".join(f"{key} = {value}\n" for key, value in (learner or {}).items())
    site.config.write_text(
        f"""
[stream]
address = "{site.address}"
partitions = {partitions}
poll_records = {poll_records}
[space]
warmup_objects = 100
[space.views.x]
{case.view}
[learner]
{case.learner}
{more}
{case.sections}
[checkpoints]
path = "{path}"
every = "{every}"
every_events = {every_events}
keep = {keep}
[http]
learn_port = 0
[log]
format = "json"
""",
        encoding="utf-8",
    )
    return site
