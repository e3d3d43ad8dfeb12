"""Who may decide from a page. Reading needs no permission; writing does, as anybody on the machine
or on the network may reach the server, and so may any page that a browser there has open.

A browser may decide that has opened the address with the server's key, which only its terminal
shows; it keeps the key in a cookie that no script sees and no other site's request carries. A
request to decide must also come from a page of this server, by its Origin, and hold that page's
token.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, urlsplit

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

MOST_BYTES = 64 << 10
"""Of what a form sends."""

FIELDS = 1100
"""More than a form has: a bucket's cases, and a few."""

Form = dict[str, list[str]]


@dataclass(frozen=True)
class Permission:
    """What a browser needs in order to decide: the `key`, made when the server starts."""

    key: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)

    @property
    def token(self) -> str:
        """What the forms of this server's pages hold."""
        return hmac.new(self.key.encode(), b"form", hashlib.sha256).hexdigest()

    def grant(self, request: Request, answer: Response) -> None:
        """Has the browser keep the key that it names. Raises HTTPException where that is not it."""
        if not _same(request.query_params.get("key", ""), self.key):
            raise HTTPException(403, "The key in this address is not this server's.")
        answer.set_cookie(_cookie(request), self.key, httponly=True, samesite="strict")

    def granted(self, request: Request) -> bool:
        """Whether the browser has the key."""
        return _same(request.cookies.get(_cookie(request), ""), self.key)

    async def form(self, request: Request) -> Form:
        """What a form of one of our pages has sent. Raises HTTPException for any other request."""
        if not self.granted(request):
            raise HTTPException(403, f"{ASKS_FOR_KEY} Nothing was written.")
        if not _of_this_server(request):
            raise HTTPException(403, "This request comes from another site. Nothing was written.")
        form = await _read(request)
        if not _same(one(form, "token") or "", self.token):
            raise HTTPException(403, "The server was started anew: load the page and try again.")
        return form


ASKS_FOR_KEY = (
    "To decide, open the address with the key that `attnfuzz dashboard --decide` has printed."
)


def one(form: Form, name: str) -> str | None:
    """What a field says, without spaces around it; None where it is empty."""
    return form.get(name, [""])[0].strip() or None


def _same(given: str, key: str) -> bool:
    return hmac.compare_digest(given.encode(), key.encode())


def _cookie(request: Request) -> str:
    """Cookies do not tell ports apart, and servers on two of them may run."""
    return f"attnfuzz-decide-{request.url.port or 80}"


def _of_this_server(request: Request) -> bool:
    """By what a browser says and no page can change. The scheme is not looked at: before the server
    there may be another that has the encryption."""
    origin = urlsplit(request.headers.get("origin", ""))
    site = request.headers.get("sec-fetch-site", "same-origin")
    return site == "same-origin" and origin.netloc == request.headers.get("host")


async def _read(request: Request) -> Form:
    if request.headers.get("content-type") != "application/x-www-form-urlencoded":
        raise HTTPException(415, "Expected a form. Nothing was written.")
    body = b""
    try:
        async for part in request.stream():
            body += part
            if len(body) > MOST_BYTES:
                raise HTTPException(413, f"Expected at most {MOST_BYTES} bytes, got more.")
    except ClientDisconnect:
        raise HTTPException(400, "The request ended early. Nothing was written.") from None
    form: Form = {}
    try:
        pairs = parse_qsl(body.decode(), max_num_fields=FIELDS, keep_blank_values=True)
    except ValueError:
        raise HTTPException(400, "Expected a form's fields as UTF-8.") from None
    for name, value in pairs:
        form.setdefault(name, []).append(value)
    return form
