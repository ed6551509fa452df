"""Who may change what is served: whoever has the token.

It is looked for in one header alone, which a browser sends to another origin only when that one allows it
(Fetch standard, CORS-safelisted request-headers), and we allow nobody: no cookie, no field of a form, no
address can stand in for it. So the type of a body need not be looked at to tell pages from programs.
"""

from __future__ import annotations

import hmac

from starlette.requests import Request

from daemon.serve.http.errors import Problem

_FIELD = "Authorization"


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
        given = request.headers.getlist(_FIELD)
        if not given:
            raise _unauthorised("missing_token", "this needs a token")
        scheme, _, token = given[0].partition(" ")
        # latin-1: that is how header bytes become text, so these are the bytes that were sent
        same = hmac.compare_digest(token.strip().encode("latin-1"), self._token)
        if len(given) != 1 or scheme.lower() != "bearer" or not same:
            raise _unauthorised("wrong_token", "this is not the token")


def _unauthorised(code: str, message: str) -> Problem:
    remedy = "send the header `Authorization: Bearer TOKEN` with the token of http.token"
    return Problem(401, code, message, _FIELD, remedy, headers={"WWW-Authenticate": "Bearer"})
