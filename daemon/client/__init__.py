"""Similarity in a user's own Python service: follow a name, score, and never notice a swap.

    from daemon.client import follow

    model = follow("checkpoints", alias="stable")
    for row, score in model.similar(query, items, k=10): ...

`follow` needs nothing but the checkpoint folder: no log, no server, no configuration. Threads of its own
look for new versions and verdicts, load and verify what the alias means, and swap it in. A call that is
under way ends with the model it began with, and every answer names its version and watermark. With a
configuration file in place of the folder, `latest` is followed event by event.

What users were shown and clicked goes to a server that takes writes ([serve.writes]):

    from daemon.client import WriteClient

    server = WriteClient("http://127.0.0.1:9103")
    shown = server.impression("desk lamp", ["lamp-7", "lamp-3"])
    server.click(shown, "lamp-3")

Servers are asked over HTTP, several of them without ever going back to an older state:

    from daemon.client import AskClient

    servers = AskClient(["http://10.0.0.7:9103", "http://10.0.0.8:9103"], monotonic=True)
    for id, score in servers.similar("lamp-7", k=10).results: ...
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from daemon.client.follow import follow as follow
from tripletd._names import check_names

if TYPE_CHECKING:
    from daemon.client.asking import AskClient as AskClient
    from daemon.client.asking import HttpAnswer as HttpAnswer
    from daemon.client.asking import NotAnsweredError as NotAnsweredError
    from daemon.client.model import Items as Items
    from daemon.client.model import Model as Model
    from daemon.client.model import Similar as Similar
    from daemon.client.model import Vectors as Vectors
    from daemon.client.writing import NotKeptError as NotKeptError
    from daemon.client.writing import WriteClient as WriteClient
    from daemon.replica.vectors import NoVectorsError as NoVectorsError
    from daemon.replica.view import NotServing as NotServing

_ASKING, _MODEL, _WRITING = "daemon.client.asking", "daemon.client.model", "daemon.client.writing"
_HOMES = {
    **dict.fromkeys(("AskClient", "HttpAnswer", "NotAnsweredError"), _ASKING),
    **dict.fromkeys(("Items", "Model", "Similar", "Vectors"), _MODEL),
    **dict.fromkeys(("NotKeptError", "WriteClient"), _WRITING),
    "NotServing": "daemon.replica.view",
    "NoVectorsError": "daemon.replica.vectors",
}
__all__ = sorted(("follow", *_HOMES))  # noqa: PLE0605

check_names()  # a folder of one of these names next to the program would be found first


def __getattr__(name: str) -> Any:
    """The other names, imported when they are first used: to import `follow` loads next to nothing."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
