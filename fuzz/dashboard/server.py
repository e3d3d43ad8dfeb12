"""The server of the pages: addresses, errors, what a browser is told to refuse, and live changes.

It only reads, unless it is given a permission to decide. It answers only requests that name a host
it is known by: a page elsewhere whose name was made to lead here gets nothing. A browser is told to
run and load nothing but the server's own script and style sheet.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import traceback
from collections.abc import AsyncIterator, Callable, Sequence

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from attnfuzz.fuzz.dashboard.actions import ACTIONS, act
from attnfuzz.fuzz.dashboard.pages import (
    LINKS,
    LISTS,
    ONE_OF,
    Deciding,
    bucket_page,
    error_page,
    home,
)
from attnfuzz.fuzz.dashboard.permission import Form, Permission
from attnfuzz.fuzz.dashboard.rendering import script, style
from attnfuzz.fuzz.dashboard.sources import Source
from attnfuzz.fuzz.errors import UserError, sentence, user_path
from attnfuzz.fuzz.report.escape import plain

LOOK_EVERY_S = 1.0
LOCAL = ("127.0.0.1", "localhost", "[::1]", "::1")

HEADERS = {
    "content-security-policy": "default-src 'none'; style-src 'self'; script-src 'self'; "
    "img-src data:; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


def application(
    sources: Sequence[Source], hosts: Sequence[str] = (), permission: Permission | None = None
) -> Starlette:
    """The pages of `sources` as an ASGI application, which answers requests to this machine by its
    local names, and to `hosts`. With a `permission` whoever has its key decides on the buckets of
    corpora."""
    served = _Served(list(sources), permission)
    writing = [
        Route("/decide", served.grant),
        Route("/{source:int}/buckets/{name:str}/{action:str}", served.act, methods=["POST"]),
    ]
    return Starlette(
        routes=[
            Route("/", served.home),
            Route("/static/style.css", _text(style, "text/css")),
            Route("/static/page.js", _text(script, "text/javascript")),
            Route("/{source:int}/", served.list),
            Route("/{source:int}/events", served.events),
            Route("/{source:int}/{list:str}", served.list),
            Route("/{source:int}/{list:str}/{name:str}", served.one),
            *(writing if permission else []),
        ],
        middleware=[
            Middleware(_Headers),
            Middleware(TrustedHostMiddleware, allowed_hosts=[*LOCAL, *hosts], www_redirect=False),
        ],
        exception_handlers={HTTPException: _refused},
        lifespan=served.lifespan,
    )


class _Served:
    """The handlers; reading and rendering go on in threads."""

    def __init__(self, sources: list[Source], permission: Permission | None) -> None:
        self._sources = sources
        self._permission = permission

    def home(self, request: Request) -> Response:
        if len(self._sources) == 1:
            return RedirectResponse(self._first(self._sources[0]))
        return HTMLResponse(home(self._sources))

    def list(self, request: Request) -> Response:
        source, name = self._source(request), request.path_params.get("list", "")
        if not source.is_campaign and name in ("", "programs"):
            return RedirectResponse(self._first(source))
        if name not in LISTS:
            raise HTTPException(404, f"There is no page {name}.")
        return self._page(lambda: LISTS[name](source, request.query_params, self._several))

    def one(self, request: Request) -> Response:
        source, sort = self._source(request), request.path_params["list"]
        if sort not in ONE_OF:
            raise HTTPException(404, f"There is no page {sort}.")
        name, more = request.path_params["name"], {}
        if sort == "buckets" and self._permission is not None:
            granted = self._permission.granted(request)
            more["deciding"] = Deciding(token=self._permission.token if granted else "")
        query = request.query_params
        return self._page(lambda: ONE_OF[sort](source, query, self._several, name, **more))

    def grant(self, request: Request) -> Response:
        """Lets the browser decide that has the key."""
        assert self._permission is not None
        answer = RedirectResponse("/", 303)
        self._permission.grant(request, answer)
        return answer

    async def act(self, request: Request) -> Response:
        """Does what a form of a bucket's page asks for."""
        assert self._permission is not None
        source, action = self._source(request), request.path_params["action"]
        if source.is_campaign or action not in ACTIONS:
            raise HTTPException(404, f"There is nothing to {action} there.")
        form = await self._permission.form(request)
        name = request.path_params["name"]
        return await run_in_threadpool(self._act, source, name, action, form)

    def _act(self, source: Source, name: str, action: str, form: Form) -> Response:
        try:
            with user_path(source.directory):
                shown = act(source.directory, name, action, form)
        except Exception as error:
            told = sentence(error)
            if told is None or self._permission is None:
                return _failed(error)
            deciding = Deciding(token=self._permission.token, refused=told, form=form)
            answer = self._page(lambda: bucket_page(source, {}, self._several, name, deciding))
            answer.status_code = max(answer.status_code, 409)
            return answer
        return RedirectResponse(f"{LINKS.bucket(source, shown)}#decide", 303)

    async def events(self, request: Request) -> Response:
        """Says `changed` whenever something has changed in a source since a page was `seen`."""
        source = self._source(request)
        return StreamingResponse(_changes(source, request), media_type="text/event-stream")

    @contextlib.asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        yield
        for source in self._sources:
            source.close()

    @property
    def _several(self) -> bool:
        return len(self._sources) > 1

    def _first(self, source: Source) -> str:
        return f"/{source.number}/" if source.is_campaign else f"/{source.number}/buckets"

    def _source(self, request: Request) -> Source:
        number = request.path_params["source"]
        if number >= len(self._sources):
            raise HTTPException(404, f"There is no campaign or corpus {number}.")
        return self._sources[number]

    def _page(self, make: Callable[[], str]) -> Response:
        try:
            return HTMLResponse(make())
        except UserError as error:
            return HTMLResponse(error_page(404, str(error)), 404)
        except Exception as error:
            return _failed(error)


async def _changes(source: Source, request: Request) -> AsyncIterator[str]:
    before = request.query_params.get("seen", "")
    yield "retry: 2000\n\n"
    while not await request.is_disconnected():
        now = await run_in_threadpool(source.version)
        yield ": nothing new\n\n" if now == before else "event: changed\ndata:\n\n"
        before = now
        await asyncio.sleep(LOOK_EVERY_S)


def _text(make: Callable[[], str], media: str) -> Callable[[Request], Response]:
    def answer(request: Request) -> Response:
        return Response(make(), media_type=media)

    return answer


def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return HTMLResponse(error_page(error.status_code, error.detail), error.status_code)


def _failed(error: Exception) -> Response:
    told = sentence(error)
    if told is None:
        print(plain("".join(traceback.format_exception(error))), end="", file=sys.stderr)
        told = "This is a defect of attnfuzz; its traceback is on the server's terminal."
    return HTMLResponse(error_page(500, told), 500)


class _Headers:
    """Adds `HEADERS` to every answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                added = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = [*message["headers"], *added]
            await send(message)

        await self._app(scope, receive, sent if scope["type"] == "http" else send)
