"""Who is answered: the middleware around the whole application, the host names, the token.

Host names: a web page may ask the server that its own name leads to, and its author decides where that
is: today his own machine, a moment later 127.0.0.1 or an address behind a firewall (C. Jackson, A. Barth,
A. Bortz, W. Shao, D. Boneh, "Protecting browsers from DNS rebinding attacks", CCS 2007). The browser then
sends that name in Host, so names that nobody gave to this server are refused. An address cannot be
pointed elsewhere: a page that asks by one was itself loaded from there, or may not read the answer.

Token: it is looked for in one header alone, which a browser sends to another origin only when that one
allows it (Fetch standard, CORS-safelisted request-headers), and no origin is allowed: no cookie, form
field or address can stand in for it. So the type of a body need not be looked at to tell pages from
programs.
"""

from __future__ import annotations

import hmac
import re
import secrets
import time
from collections.abc import Collection, Iterable
from ipaddress import ip_address

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from daemon.serve.http.errors import Problem
from daemon.serve.http.limits import HttpMetrics
from daemon.telemetry.server import NOSNIFF

log = structlog.get_logger("tripletd.http")

ANY = "*"
LOCAL = "localhost"
PROBES = frozenset({"/livez", "/readyz", "/startupz"})
"""Answered whatever the name: they say nothing of what is learned, and process managers read them."""

_FIELD = "Authorization"
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^\[\]:/@?#\s]+?)\.?(?::\d{1,5})?", re.IGNORECASE)


class AllowedHosts:
    """The names that are answered: every address, `localhost`, and `names`.

    names: host names in lower case; "*.example.org" for all below example.org; "*" for whatever is said.
    Not starlette's TrustedHostMiddleware: it cuts Host at the first colon, so that no IPv6 address passes,
    knows no addresses, takes two Host headers, and answers 400 in plain text.
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        given = frozenset(names)
        self._any = ANY in given
        self._names = {LOCAL} | {name for name in given if not name.startswith(ANY)}
        self._endings = tuple(name.removeprefix(ANY) for name in given if name.startswith("*."))

    def know(self, host: str) -> bool:
        """Whether this value of a Host header is a name of this server."""
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


class RequestGuard:
    """ASGI middleware. A bug is answered 500 with an id under which the log has its trace.

    Args:
        hosts: the names under which it may be asked.
        routes: paths of the application; any other is counted as "other", so that labels stay bounded.
    """

    def __init__(
        self, app: ASGIApp, metrics: HttpMetrics, hosts: AllowedHosts, routes: Collection[str]
    ) -> None:
        self._app, self._metrics, self._hosts = app, metrics, hosts
        self._routes = frozenset(routes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status, start = 0, time.perf_counter()

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in NOSNIFF.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            self._hosts.check(scope)
            await self._app(scope, receive, watched)
        except Problem as problem:
            if status == 0:
                await problem.response()(scope, receive, watched)
        except Exception as error:
            bug = self._bug(error, scope)
            if status:
                raise  # an answer is on its way: only the end of the connection tells that it is not whole
            await bug.response()(scope, receive, watched)
        finally:
            path = scope["path"]
            route = path if path in self._routes else "other"
            self._metrics.requests.labels(route, str(status)).inc()
            self._metrics.seconds.labels(route).observe(time.perf_counter() - start)

    def _bug(self, error: Exception, scope: Scope) -> Problem:
        self._metrics.bugs.inc()
        name = secrets.token_hex(6)
        path = scope["path"] if scope["path"] in self._routes else "other"
        log.error("a bug in answering a request", id=name, path=path, exc_info=error)
        return Problem(
            500, "bug", f"something went wrong in here; the log has it as {name}", None, "report it"
        )


class TokenGuard:
    """Compares bearer tokens in constant time; keeps the token from being printed.

    Args:
        token: the right one; "" lets nobody in.
    """

    def __init__(self, token: str) -> None:
        self._token = token.encode()

    def __repr__(self) -> str:
        return "TokenGuard(...)"

    def check(self, request: Request) -> None:
        """Raises Problem: 403 where nobody is let in, 401 for no token or a wrong one."""
        if not self._token:
            remedy = "set http.token, or TRIPLETD_HTTP__TOKEN_FILE to the path of its file, and restart serve"
            raise Problem(403, "no_token_configured", "changes over HTTP are switched off", _FIELD, remedy)
        given = bearer_token(request)
        if given is None:
            raise _unauthorised("missing_token", "this needs a token")
        if not hmac.compare_digest(given, self._token):
            raise _unauthorised("wrong_token", "this is not the token")


def bearer_token(request: Request) -> bytes | None:
    """The bytes of the token in the header: none where it has another form, None without the header."""
    given = request.headers.getlist(_FIELD)
    if not given:
        return None
    scheme, _, token = given[0].partition(" ")
    if len(given) != 1 or scheme.lower() != "bearer":
        return b""
    # latin-1: that is how header bytes become text, so these are the bytes that were sent
    return token.strip().encode("latin-1")


def _unauthorised(code: str, message: str) -> Problem:
    remedy = "send the header `Authorization: Bearer TOKEN` with the token of http.token"
    return Problem(401, code, message, _FIELD, remedy, headers={"WWW-Authenticate": "Bearer"})
