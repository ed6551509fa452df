"""The serving catalog of a configuration."""

from __future__ import annotations

from daemon.config import Config
from daemon.dead_letters import open_dead
from daemon.objects.space import space_of
from daemon.serve.items.catalog import Following, ServingCatalog
from daemon.serve.items.decoding import ItemDecoder
from daemon.serve.items.display import DisplayFile, load_display
from daemon.serve.items.index import ItemIndex
from daemon.serve.items.letters import ItemLetters
from daemon.serve.items.loading import catalog_rows
from daemon.serve.items.merging import Sizes
from daemon.serve.items.topic import ItemTopic
from learners.maps import FittedSpaceMap
from streams.catalog import load_catalog
from streams.open import compact, open_source


def build_catalog(config: Config, fitted: FittedSpaceMap, sizes: Sizes | None = None) -> ServingCatalog:
    """The catalog of `serve.catalog` (else `catalog.path`, else no file) and of the stream's topic of items.

    fitted: the frozen map of the versions that are served. The files are read before this returns; `start`
    begins to follow the topic, which need not exist yet. Raises CatalogError or UserError for a file.
    """
    space = space_of(config)
    sizes = sizes or Sizes()
    shown = load_display(config.serve.display) if config.serve.display else DisplayFile()
    path = config.serve.catalog or config.catalog.path
    address = config.stream.to_address()

    def making() -> ItemIndex:
        index = ItemIndex(fitted.id, shown, sizes)
        if path:
            index.load(catalog_rows(load_catalog(path, space), fitted, shown, sizes.part))
        return index

    topic = ItemTopic(lambda: open_source(address.items), lambda: compact(address.items))
    decoder = ItemDecoder(space, fitted, address.items.topic, shown, config.stream.max_record_size)
    letters = ItemLetters(lambda: open_dead(address.dead))
    return ServingCatalog(space, fitted, making, Following(topic, decoder, letters))
