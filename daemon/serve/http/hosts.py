"""Under which names the server may be asked, so that no stranger's web page reads through somebody's browser.

A page may ask the server that its own name leads to, and whoever made the page decides where that is: today
its own machine, a moment later 127.0.0.1 or an address behind a firewall (C. Jackson, A. Barth, A. Bortz, W.
Shao, D. Boneh, "Protecting browsers from DNS rebinding attacks", CCS 2007). The browser then says that name
in Host, so that names nobody gave to this server are refused. An address cannot be pointed elsewhere: a page
that asks by one was itself loaded from there, or may not read the answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import ip_address

from starlette.datastructures import Headers
from starlette.types import Scope

from daemon.serve.http.errors import Problem

ANY = "*"
LOCAL = "localhost"
PROBES = frozenset({"/livez", "/readyz", "/startupz"})
"""Answered whatever the name: they tell nothing of what is learned, and are asked by whatever runs us."""

_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^\[\]:/@?#\s]+?)\.?(?::\d{1,5})?", re.IGNORECASE)


class Hosts:
    """The names that are answered: every address, `localhost`, and `names`.

    names: host names in lower case; "*.example.org" for all below example.org; "*" for whatever is said.
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        given = frozenset(names)
        self._any = ANY in given
        self._names = {LOCAL} | {name for name in given if not name.startswith(ANY)}
        self._endings = tuple(name.removeprefix(ANY) for name in given if name.startswith("*."))

    def know(self, host: str) -> bool:
        """Whether this value of a Host header names us."""
        found = _HOST.fullmatch(host)
        if found is None:
            return False
        name = found[1].lower()
        return self._any or name in self._names or name.endswith(self._endings) or _is_address(name)

    def check(self, scope: Scope) -> None:
        """Raises Problem: 400 without one Host (HTTP/1.0 may do without), 421 for a name that is not ours."""
        given = Headers(scope=scope).getlist("host")
        if scope["path"] in PROBES or (not given and scope["http_version"] == "1.0"):
            return
        if len(given) != 1:
            message = f"{len(given)} Host headers" if given else "no Host header"
            raise Problem(400, "bad_host", message, "Host", "send one, as HTTP/1.1 asks for")
        if not self.know(given[0]):
            remedy = "ask by address or as localhost, or add the name to http.hosts and restart serve"
            raise Problem(421, "unknown_host", "this is not a name of this server", "Host", remedy)


def _is_address(name: str) -> bool:
    try:
        ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True
