"""Who is answered: the middleware around the whole application, the host names, the origins, the token.

Host names: a web page may ask the server that its own name leads to, and its author decides where that
is: today his own machine, a moment later 127.0.0.1 or an address behind a firewall (C. Jackson, A. Barth,
A. Bortz, W. Shao, D. Boneh, "Protecting browsers from DNS rebinding attacks", CCS 2007). The browser then
sends that name in Host, so names that nobody gave to this server are refused. An address cannot be
pointed elsewhere: a page that asks by one was itself loaded from there, or may not read the answer.

Origin: what costs or writes (`EFFECTS`) is done for a token, or for who is no page of another origin. A page
may send a POST of plain text to any address without asking, and its visitor's machine may reach this one.

Token: it is looked for in one header, which a browser sends to another origin only when that one allows it
(Fetch standard, CORS-safelisted request-headers): no cookie and no address can stand in for it. So the type
of a body need not be looked at to tell pages from programs. Two exceptions: what a page writes may hold its
token in the body, where only that page's author can put it; and to look at our own page, people may give a
token as the password of their browser's prompt, which opens nothing but reading, because the browser then
adds it to whatever other pages ask for. To rate on our own page it is taken, too: such a request is JSON,
which a browser sends to another origin only when that one allows it, and names our own origin.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Collection, Iterable, Mapping
from http import HTTPStatus
from ipaddress import ip_address
from threading import Event

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from daemon.runtime.doors import ASK, CLICK, METRICS, Gate, Grant
from daemon.serve.http.errors import Problem
from daemon.serve.http.limits import HttpMetrics
from daemon.telemetry.server import GUARDED, NOSNIFF, PAGES, allowed

log = structlog.get_logger("tripletd.http")

ANY = "*"
LOCAL = "localhost"
PROBES = frozenset({"/livez", "/readyz", "/startupz"})
"""Answered whatever the name: they say nothing of what is learned, and process managers read them."""

_FIELD = "Authorization"
_GRANT = "tripletd.grant"
WRITE_PATHS = ("/v1/impressions", "/v1/clicks")
"""Pages write to these: their token may stand in the body."""
RATINGS_PATH, REPORT_PATH = "/v1/page/ratings", "/v1/page/ratings/report"
"""Our own page sends what people rate; what comes of it is a number of the role, as in its metrics."""
READS, COSTS, WRITES = "reads", "costs", "writes"
EFFECTS: Mapping[str, Collection[str]] = {
    COSTS: ("POST /v1/embeddings", "POST /v1/rerank", "POST /v2/rerank"),
    WRITES: (
        "POST /v1/impressions",
        "POST /v1/clicks",
        "POST /v1/models/promote",
        "POST /v1/models/rollback",
        "POST /v1/models/pin",
        "POST /v1/models/gc",
        f"GET {RATINGS_PATH}/next",  # the first one begins a study
        f"POST {RATINGS_PATH}",
    ),
    READS: (
        "GET /v1/similar",
        "POST /v1/similar",  # with `log` it writes, and asks for the right to
        "POST /v1/similar/batch",
        "POST /v1/fold",
        "POST /v1/embed",
        "GET /v1/models",
        "GET /v1/models/{model:path}",
        "GET /v1/versions",
        "GET /v1/openapi.json",
        *(f"GET {page}" for page in PAGES),
        *(f"GET {page}" for page in ("/", "/page/{name:path}", "/rate", "/rate/report", REPORT_PATH)),
        *(f"GET /v1/page/{name}" for name in ("overview", "curves", "curves.csv", "series", "versions")),
        *(f"GET /v1/page/{name}" for name in ("keys", "image", "diff", "objects", "explore")),
    ),
}
"""Every route, by what asking it does: it reads, it costs money of an upstream's, or it writes."""
_UNSAFE = frozenset((*EFFECTS[COSTS], *EFFECTS[WRITES]))
_PREFLIGHT_S = 600
_BY_KEY = ("/v1/similar", "/v1/similar/batch")
"""Questions that name a key, and so are open to a token that is limited to keys."""
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


class AllowedOrigins:
    """The origins whose pages may write; a page of this very server may as well, and what names no origin is
    no browser. origins: such as "https://shop.example.org"; "*" for all."""

    def __init__(self, origins: Iterable[str] = ()) -> None:
        self._origins = frozenset(origins)

    def know(self, origin: str, headers: Headers) -> bool:
        """Whether a page of this origin may write."""
        own = origin.partition("://")[2] == headers.get("host")
        return own or ANY in self._origins or origin in self._origins

    def check(self, headers: Headers) -> str | None:
        """The origin, None where none is named. Raises Problem 403."""
        origin = headers.get("origin")
        if origin is None:
            return None
        if not self.know(origin, headers):
            remedy = "add its origin to serve.writes.origins and restart serve"
            raise Problem(403, "unknown_origin", "pages of this origin may not write", "Origin", remedy)
        return origin


def check_no_other_page(headers: Headers) -> None:
    """Raises Problem 403 where a browser says that a page of another origin asks. No browser hides it: a POST
    to another origin has `Origin`, and what has none has `Sec-Fetch-Site`."""
    origin, site = headers.get("origin"), headers.get("sec-fetch-site", "none")
    if not (site in ("same-origin", "none") if origin is None else AllowedOrigins().know(origin, headers)):
        remedy = "ask from a program with a token in the header Authorization, or from a page of this server"
        remedy += " under the name in Host: a proxy has to leave Host unchanged"
        message = "this request comes from a web page of another origin"
        raise Problem(403, "unknown_origin", message, "Origin", remedy, close=True)


def check_own_page(headers: Headers) -> None:
    """Raises Problem where a browser may have sent this for a page that is not ours: 415 for another type
    than JSON, 403 for another origin."""
    if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        remedy = "send it as application/json"
        raise Problem(415, "not_json", "the body has another type", "Content-Type", remedy, close=True)
    check_no_other_page(headers)


class CrossOrigin:
    """ASGI middleware of the paths that pages write to: answers what browsers ask first, and lets pages of
    allowed origins read answers (Fetch standard, CORS protocol). No credentials: a token is no cookie."""

    def __init__(self, app: ASGIApp, origins: AllowedOrigins) -> None:
        self._app, self._origins = app, origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] not in WRITE_PATHS:
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        origin = self._origins.check(headers)

        async def send_with_origin(message: Message) -> None:
            if origin is not None and message["type"] == "http.response.start":
                sent = MutableHeaders(scope=message)
                sent["Access-Control-Allow-Origin"] = origin
                sent.add_vary_header("Origin")
            await send(message)

        if scope["method"] == "OPTIONS" and origin and "access-control-request-method" in headers:
            allowed = {
                "Access-Control-Allow-Methods": "POST",
                "Access-Control-Allow-Headers": "Authorization, Content-Type",
                "Access-Control-Max-Age": str(_PREFLIGHT_S),
            }
            await Response(status_code=204, headers=allowed)(scope, receive, send_with_origin)
            return
        try:
            await self._app(scope, receive, send_with_origin)
        except Problem as problem:  # a page may read what was wrong, too
            await problem.response()(scope, receive, send_with_origin)


class RequestGuard:
    """ASGI middleware. A bug is answered 500 with an id under which the log has its trace.

    Args:
        hosts: the names under which it may be asked.
        tokens: who is let in.
        routes: paths of the application; any other is counted as "other", so that labels stay bounded.
        draining: set where the server is about to end, so that each connection ends with its next answer.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        metrics: HttpMetrics,
        hosts: AllowedHosts,
        tokens: TokenGuard,
        routes: Collection[str],
        draining: Event,
    ) -> None:
        self._app, self._metrics, self._hosts, self._tokens = app, metrics, hosts, tokens
        self._routes, self._draining = frozenset(routes), draining

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
                if self._draining.is_set():
                    headers["Connection"] = "close"
            await send(message)

        try:
            self._hosts.check(scope)
            scope[_GRANT] = self._admit(scope)
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

    def _admit(self, scope: Scope) -> Grant | None:
        """What is let in with the first look at a request. What pages write and what changes versions asks by
        itself, for an origin (`CrossOrigin`) and for a token. Raises Problem."""
        path = scope["path"]
        reads = scope["method"] in ("GET", "HEAD")
        if path in PROBES or path in WRITE_PATHS or (path.startswith("/v1/models/") and not reads):
            return None
        rates = path == RATINGS_PATH and not reads
        wanted = METRICS if path in (*GUARDED, REPORT_PATH) else CLICK if rates else ASK
        headers = Headers(scope=scope)
        if rates:
            check_own_page(headers)
        grant = self._tokens.check(headers, wanted, basic=reads or rates)
        method = "GET" if reads else scope["method"]
        has_token = grant is not None and headers.get(_FIELD, "").lower().startswith("bearer ")
        if f"{method} {path}" in _UNSAFE and not (rates or has_token):  # a browser adds Basic by itself
            check_no_other_page(headers)
        if grant is not None and grant.keys is not None and path not in _BY_KEY:
            message = "this token is limited to keys, and this is about all of them"
            raise Problem(403, "limited_to_keys", message, _FIELD, "use a token without keys")
        return grant

    def _bug(self, error: Exception, scope: Scope) -> Problem:
        self._metrics.bugs.inc()
        name = secrets.token_hex(6)
        path = scope["path"] if scope["path"] in self._routes else "other"
        log.error("a bug in answering a request", id=name, path=path, exc_info=error)
        return Problem(
            500, "bug", f"something went wrong in here; the log has it as {name}", None, "report it"
        )


class TokenGuard:
    """Asks for the token that a route needs, where one is needed."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def __repr__(self) -> str:
        return "TokenGuard(...)"

    def check(
        self, headers: Headers, scope: str, *, in_body: str | None = None, basic: bool = False
    ) -> Grant | None:
        """What the token opens; None where none is needed.

        in_body: a token that stands in the body, which then counts instead of the header. basic: as in
        `allowed`. Raises Problem: 403 where nobody is let in or the token is for something else, 401 for no
        token or a wrong one.
        """
        if scope in self._gate.shut:
            remedy = "set http.token, or TRIPLETD_HTTP__TOKEN_FILE to the path of its file, and restart serve"
            raise Problem(403, "no_token_configured", "changes over HTTP are switched off", _FIELD, remedy)
        if scope not in self._gate.needed:
            return None
        given = headers.getlist(_FIELD)
        if in_body is not None:
            given = [f"Bearer {in_body.encode().decode('latin-1')}"]  # as the bytes of a header become text
        found = allowed(self._gate, scope, given[0] if len(given) == 1 else None, basic=basic)
        if found == HTTPStatus.FORBIDDEN:
            message = f"this token does not have the scope {scope}"
            remedy = "use another token; `tripletd tokens list` says who may do what"
            raise Problem(403, "wrong_scope", message, _FIELD, remedy)
        if isinstance(found, HTTPStatus):
            code, message = ("wrong_token", "this is not the token") if given else ("missing_token", _MISSING)
            remedy = "send the header `Authorization: Bearer TOKEN` with a token that has the scope " + scope
            scheme = 'Basic realm="tripletd", charset="UTF-8"' if basic else "Bearer"
            raise Problem(401, code, message, _FIELD, remedy, headers={"WWW-Authenticate": scheme})
        return found


_MISSING = "this needs a token"


def check_key(grant: Grant | None, key: str | None, field: str) -> None:
    """Raises Problem 403 where the token is limited to other keys; leaving the key out means all of them."""
    if grant is None or grant.keys is None or key in grant.keys:
        return
    message = "this token is limited to keys, and this is none of them"
    raise Problem(403, "wrong_key", message, field, "name a key that the token is for")


def grant_of(scope: Scope) -> Grant | None:
    """What the token of a request opens, where its route needed one."""
    found: Grant | None = scope.get(_GRANT)
    return found
