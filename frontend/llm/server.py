"""A server of OpenAI's chat and text completions, an ASGI application on Starlette; uvicorn runs it.

Paths: `/v1/models`, `/v1/chat/completions`, `/v1/completions`, `/` (a page to chat), `/health`. All requests
run in one batch. A client that disconnects ends its request. Where too many wait, a client gets status 429
with `Retry-After`. Needs the extra `serve`.

Not here: the fields of requests (`protocol`), the batch (`batching`). Next: `__main__`, the command.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import socket
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from frontend.llm.batching import BatchEndedError, BatchFullError, ContextLengthError, Request
from frontend.llm.protocol import Reply, RequestError, Wanted, wanted
from frontend.llm.tokenizer import TextPieces
from frontend.llm.tokenizer import library as texts_library
from hcq.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from frontend.llm.batching import RunningBatch
    from frontend.llm.protocol import Kind
    from frontend.llm.tokenizer import TextCodec

LOCAL: Final = ("localhost", "127.0.0.1", "[::1]", "::1")
"""Names of this machine for itself."""
_PAGE: Final = Path(__file__).with_name("chat_page.html")
"""The page to chat. It sets texts as text, never as HTML, and has no files of others."""
_MOST_BODY: Final = 4 << 20
"""Bytes of a request at most."""
library: Final = partial(texts_library, who="the server of language models needs", extra="serve")
"""Returns a module of the extra `serve`."""


def application(
    batch: RunningBatch, codec: TextCodec, name: str, *, key: str | None = None, hosts: Sequence[str] = LOCAL
) -> Any:
    """Return the ASGI application that serves a batch under the name of a model.

    With a `key` every request of `/v1` needs the header `Authorization: Bearer KEY`. `hosts` are the values
    of the header Host that are served, "*" for all: by default those of this machine, so that a page of
    another site cannot reach the server by a name of its own. The caller closes the batch.
    Raises `UnsupportedError` without Starlette.
    """
    applications, routing = library("starlette.applications"), library("starlette.routing")
    middleware = library("starlette.middleware")
    trusted = library("starlette.middleware.trustedhost").TrustedHostMiddleware
    served = _Server(batch, codec, name, key)
    route = routing.Route
    return applications.Starlette(
        routes=[
            route("/", served.page),
            route("/health", served.health),
            route("/v1/models", served.models),
            route("/v1/models/{name:path}", served.models),
            route("/v1/chat/completions", served.chat, methods=["POST"]),
            route("/v1/completions", served.completions, methods=["POST"]),
        ],
        middleware=[middleware.Middleware(trusted, allowed_hosts=list(hosts), www_redirect=False)],
        exception_handlers={
            RequestError: served.refused,
            library("starlette.exceptions").HTTPException: served.unknown,
            Exception: served.failed,
        },
    )


class _Generation:
    """A request in the batch, seen from the event loop: an iterator of pieces of text.

    `finish` is OpenAI's reason of the end: "stop" or "length".
    """

    def __init__(self, server: _Server, asked: Wanted, reply: Reply) -> None:
        np = import_module("numpy")
        self.stops, self.reply, self.finish = asked.stops, reply, "length"
        self.batch, self.pieces = server.batch, TextPieces(server.codec)
        self.items: asyncio.Queue[int | BaseException | None] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def put(item: int | BaseException | None) -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody reads any more
                loop.call_soon_threadsafe(self.items.put_nowait, item)

        room = max(1, server.batch.context - len(asked.ids))
        self.most = room if asked.most is None else asked.most
        self.request = Request(
            ids=asked.ids, most=self.most, sampling=asked.sampling, put=put,
            draw=np.random.default_rng(asked.seed), ends=frozenset(server.batch.model.description.stops),
        )  # fmt: skip
        server.batch.submit(self.request)

    async def texts(self) -> AsyncIterator[str]:
        """Yield pieces of text up to the end or a stop text; what may begin a stop text waits."""
        held = ""
        try:
            while (item := await self.items.get()) is not None:
                if isinstance(item, BaseException):
                    raise item
                self.reply.tokens += 1
                held += self.pieces.add(item)
                if (at := self._stop(held)) is not None:
                    self.finish = "stop"
                    yield held[:at]
                    return
                keep = self._begun(held)
                if len(held) > keep:
                    yield held[: len(held) - keep]
                    held = held[len(held) - keep :]
            held += self.pieces.rest()
            at = self._stop(held)
            self.finish = "length" if at is None and self.reply.tokens == self.most else "stop"
            if held[:at]:
                yield held[:at]
        finally:
            self.batch.cancel(self.request)

    def _stop(self, text: str) -> int | None:
        """Return where the first stop text begins."""
        return min([at for stop in self.stops if (at := text.find(stop)) >= 0], default=None)

    def _begun(self, text: str) -> int:
        """Return how many characters at the end may be the start of a stop text."""
        longest = max(map(len, self.stops), default=1)
        sizes = range(min(longest - 1, len(text)), 0, -1)
        return next((n for n in sizes if any(s.startswith(text[-n:]) for s in self.stops)), 0)


class _Server:
    """The handlers of the paths."""

    def __init__(self, batch: RunningBatch, codec: TextCodec, name: str, key: str | None) -> None:
        self.batch, self.codec, self.name, self.key = batch, codec, name, key
        self.responses = library("starlette.responses")

    async def page(self, _request: Any) -> Any:
        """Answer with the page to chat, which runs no script of others."""
        rule = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'"
        return self.responses.HTMLResponse(_PAGE.read_text(), headers={"Content-Security-Policy": rule})

    async def health(self, _request: Any) -> Any:
        """Answer that the server runs."""
        return self.responses.JSONResponse({"status": "ok"})

    async def models(self, request: Any) -> Any:
        """Answer with the one model."""
        self._allowed(request)
        own = {"id": self.name, "object": "model", "created": 0, "owned_by": "hcq"}
        asked = request.path_params.get("name")
        if asked not in (None, self.name):
            text = f"the model {asked!r} does not exist; this server has {self.name!r}"
            raise RequestError(text, param="model", status=404, code="model_not_found")
        return self.responses.JSONResponse({"object": "list", "data": [own]} if asked is None else own)

    async def chat(self, request: Any) -> Any:
        """Answer messages."""
        return await self._complete("chat.completion", request)

    async def completions(self, request: Any) -> Any:
        """Go on with a text."""
        return await self._complete("text_completion", request)

    async def _complete(self, kind: Kind, request: Any) -> Any:
        self._allowed(request)
        asked = wanted(kind, await _body(request), self.codec, self.name)
        reply = Reply(asked, self.name)
        try:
            generation = _Generation(self, asked, reply)
        except BatchFullError as error:
            raise RequestError(str(error), status=429, kind="rate_limit_error") from None
        except BatchEndedError as error:
            raise RequestError(str(error), status=503, kind="server_error") from None
        except UsageError as error:
            param = "messages" if kind == "chat.completion" else "prompt"
            code = "context_length_exceeded" if isinstance(error, ContextLengthError) else None
            raise RequestError(str(error), param=param, code=code) from None
        if asked.stream:
            headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
            events = _events(generation, asked)
            return self.responses.StreamingResponse(events, media_type="text/event-stream", headers=headers)
        text = await _unless_gone(request, _whole(generation))
        if text is None:
            return self.responses.Response(status_code=499)  # nobody reads it
        return self.responses.JSONResponse(reply.whole(text, generation.finish))

    def _allowed(self, request: Any) -> None:
        """Raise `RequestError` for a wrong key."""
        given = request.headers.get("authorization", "")
        if self.key is not None and not hmac.compare_digest(given.encode(), f"Bearer {self.key}".encode()):
            text = "wanted the header 'Authorization: Bearer KEY' with the key of this server"
            raise RequestError(text, status=401, code="invalid_api_key")

    async def refused(self, _request: Any, error: RequestError) -> Any:
        """Answer with OpenAI's error object."""
        headers = {401: {"WWW-Authenticate": "Bearer"}, 429: {"Retry-After": "1"}}.get(error.status)
        return self.responses.JSONResponse(error.body(), status_code=error.status, headers=headers)

    async def unknown(self, request: Any, error: Any) -> Any:
        """Answer a path or method that is not served."""
        text = f"{request.method} {request.url.path}: {error.detail}"
        return await self.refused(request, RequestError(text, status=error.status_code, code="unknown_url"))

    async def failed(self, request: Any, error: Exception) -> Any:
        """Answer where the device or the server failed."""
        return await self.refused(request, RequestError(str(error), status=500, kind="server_error"))


async def _body(request: Any) -> Any:
    """Return the JSON of a request. Raises `RequestError` where it is none, or too long."""
    if request.headers.get("content-type", "").split(";")[0].strip().lower() != "application/json":
        raise RequestError("wanted the header 'Content-Type: application/json'", status=415)
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > _MOST_BODY:
            raise RequestError(f"wanted a body of at most {_MOST_BODY} bytes", status=413)
        parts.append(part)
    try:
        found = json.loads(b"".join(parts))
        json.dumps(found, ensure_ascii=False).encode()  # no halves of surrogate pairs
    except (ValueError, RecursionError) as error:
        raise RequestError(f"the body is no JSON: {error}") from None
    return found


async def _whole(generation: _Generation) -> str:
    return "".join([text async for text in generation.texts()])


async def _unless_gone(request: Any, work: Any) -> str | None:
    """Return the result of a coroutine; cancel it and return None if the client disconnects before."""

    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    task, watch = asyncio.ensure_future(work), asyncio.ensure_future(gone())
    try:
        await asyncio.wait({task, watch}, return_when=asyncio.FIRST_COMPLETED)
        return await task if task.done() else None
    finally:
        for one in (task, watch):
            one.cancel()
        await asyncio.gather(task, watch, return_exceptions=True)


async def _events(generation: _Generation, asked: Wanted) -> AsyncIterator[str]:
    """Yield the events of a stream: pieces, the end, the numbers of tokens, and [DONE]."""
    reply, texts = generation.reply, generation.texts()

    def event(found: dict[str, Any]) -> str:
        return f"data: {json.dumps(found, ensure_ascii=False)}\n\n"

    try:
        if asked.kind == "chat.completion":
            yield event(reply.chunk("", first=True))
        async for text in texts:
            yield event(reply.chunk(text))
        yield event(reply.chunk(None, generation.finish))
        if asked.usage:
            yield event(reply.last())
        yield "data: [DONE]\n\n"
    except Exception as error:  # noqa: BLE001 - the status is sent already; the client gets the error
        yield event(RequestError(str(error), status=500, kind="server_error").body())
    finally:
        await texts.aclose()  # type: ignore[attr-defined]  # an asynchronous generator
        generation.batch.cancel(generation.request)


def listening(host: str, port: int) -> socket.socket:
    """Return a socket that listens; clients wait until `serve` answers. Port 0: a free one.

    Raises `UnsupportedError` without the extra `serve`, `UsageError` for an address that cannot be had.
    """
    library("starlette.applications"), library("uvicorn")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host.strip("[]"), port), family=family)
    except OSError as error:
        text = f"wanted to listen on {host}, port {port}, saw: {str(error.strerror).partition(' (')[0]}"
        raise UsageError(f"{text}\nhint: --port 0 takes a free one") from None


def serve(app: Any, place: socket.socket) -> None:
    """Serve an application at a socket until the process is interrupted, and close the socket."""
    uvicorn = library("uvicorn")
    with suppress(KeyboardInterrupt):
        uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=5)).run([place])
