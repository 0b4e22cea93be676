"""The server of language models: answers of clients at once, streams, refusals, disconnects."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from frontend import llm
from frontend.llm.__main__ import main
from frontend.llm.batching import BatchEndedError, BatchFullError, ContextLengthError, Request, RunningBatch
from frontend.llm.sampling import Sampling
from frontend.llm.server import listening
from hcq.errors import UsageError
from tests.frontend.llm.test_texts_of_models import vocabulary
from tests.oracles import gguf_models

if TYPE_CHECKING:
    from collections.abc import Iterator

missing = [n for n in ("tokenizers", "jinja2", "starlette", "uvicorn") if importlib.util.find_spec(n) is None]
needs_server = pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)} (extra serve)")
PROMPTS = [[1, 5, 9], [7] * 30, [2, 3], list(range(4, 90)), [11, 12, 13, 14], [90]]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> llm.LanguageModel:
    path = tmp_path_factory.mktemp("served") / "model.gguf"
    more = vocabulary("gpt2") if importlib.util.find_spec("tokenizers") else {}
    more["tokenizer.chat_template"] = "{% for m in messages %}{{ m.content }}{% endfor %}"
    return llm.load(gguf_models.write(path, "llama, Q8_0", more))


class Client:
    """A request of a batch without a server; `ids` are those that were put."""

    def __init__(self, ids: list[int], most: int, seed: int = 0, temperature: float = 0.0) -> None:
        import threading

        self.ids: list[int] = []
        self.error: BaseException | None = None
        self.done = threading.Event()
        sampling, draw = Sampling(temperature=temperature), np.random.default_rng(seed)
        self.request = Request(
            ids=ids, most=most, sampling=sampling, draw=draw, ends=frozenset(), put=self.put
        )

    def put(self, item: int | BaseException | None) -> None:
        if isinstance(item, int):
            self.ids.append(item)
            return
        self.error = item
        self.done.set()


def submit_all(batch: RunningBatch, clients: list[Client]) -> None:
    for client in clients:
        batch.submit(client.request)


def test_requests_that_join_a_batch_get_the_ids_that_they_get_alone(model: llm.LanguageModel) -> None:
    """Six prompts of 1 to 86 tokens in three rows; the longest one arranges the batch anew."""
    want = [list(model.generate(p, max_tokens=12 + 5 * i, stop=())) for i, p in enumerate(PROMPTS)]
    with RunningBatch(model, rows=3) as batch:
        clients = [Client(p, 12 + 5 * i) for i, p in enumerate(PROMPTS)]
        gone = Client([1, 2], 300)
        batch.submit(gone.request)
        for client in clients:
            batch.submit(client.request)
        batch.cancel(gone.request)
        for client, ids in zip(clients, want, strict=True):
            assert client.done.wait(600)
            assert (client.ids, client.error) == (ids, None)
        long = Client([1, 5, 9], 280)  # past the 256 slots that the batch begins with
        batch.submit(long.request)
        assert long.done.wait(600)
    assert long.ids == list(model.generate([1, 5, 9], max_tokens=280, stop=()))
    assert len(gone.ids) < 300


def test_a_batch_refuses_what_it_cannot_run(model: llm.LanguageModel) -> None:
    with RunningBatch(model, rows=1, waiting=1, context=64) as batch:
        for ids, most in (([], 4), ([-1], 4), ([1 << 40], 4), ([1], 0)):
            with pytest.raises(UsageError):
                batch.submit(Client(ids, most).request)
        with pytest.raises(ContextLengthError):
            batch.submit(Client([1], 64).request)
        clients = [Client([1], 60) for _ in range(40)]
        with pytest.raises(BatchFullError):
            submit_all(batch, clients)
    with pytest.raises(BatchEndedError, match="does not run"):
        batch.submit(Client([1], 4).request)
    assert clients[0].error is None or "closed" in str(clients[0].error)
    with pytest.raises(UsageError, match="at least 1"):
        RunningBatch(model, rows=0)


class Served:
    """Calls an ASGI application in this process."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def call(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None, leave: int = 0
    ) -> tuple[int, str]:
        """Return status and text. With `leave` the client disconnects after so many pieces; -1: at once."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        given = {"host": "localhost", "content-type": "application/json"} | (headers or {})
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "path": path,
            "raw_path": path.encode(), "query_string": b"", "scheme": "http", "server": ("localhost", 80),
            "headers": [(k.encode(), v.encode()) for k, v in given.items()],
        }  # fmt: skip
        sent, status, parts, left = False, [0], [], asyncio.Event()
        if leave < 0:
            left.set()

        async def receive() -> dict[str, Any]:
            nonlocal sent
            if sent:
                await left.wait()
                return {"type": "http.disconnect"}
            sent = True
            return {"type": "http.request", "body": data, "more_body": False}

        async def send(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                status[0] = message["status"]
            else:
                parts.append(message.get("body", b""))
                if 0 < leave <= len(parts):
                    left.set()

        await self.app(scope, receive, send)
        return status[0], b"".join(parts).decode()


@contextmanager
def served(model: llm.LanguageModel, **options: Any) -> Iterator[Served]:
    from frontend.llm.server import application

    with RunningBatch(model, rows=2, waiting=options.pop("waiting", 64)) as batch:
        yield Served(application(batch, llm.TextCodec.of(model.path), "tiny", **options))


def asked(text: str, **more: Any) -> dict[str, Any]:
    return {"model": "tiny", "prompt": text, "max_tokens": 8, "temperature": 0} | more


def pieces(text: str) -> list[Any]:
    lines = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


@needs_server
def test_clients_at_once_get_the_answers_of_a_single_one(model: llm.LanguageModel) -> None:
    bodies = [asked("QZ#!", seed=i, temperature=i % 2, max_tokens=4 + 3 * i) for i in range(6)]
    messages = [{"role": "user", "content": [{"type": "text", "text": "XY"}]}]
    without = {"logprobs": False, "top_logprobs": 0, "n": 1, "logit_bias": {}, "user": "a", "tools": None}
    chat = {"model": "tiny", "messages": messages, "temperature": 0, "max_completion_tokens": 8} | without

    async def run(client: Served) -> None:
        async def text(body: Any) -> Any:
            status, found = await client.call("POST", "/v1/completions", body)
            assert status == 200, found
            answer = json.loads(found)
            return answer["choices"], answer["usage"]

        alone = [await text(body) for body in bodies]
        left = client.call("POST", "/v1/completions", asked("QQ", max_tokens=400, stream=True), leave=2)
        together = await asyncio.gather(left, *[text(body) for body in bodies])
        assert list(together[1:]) == alone
        assert together[0][0] == 200
        assert "[DONE]" not in together[0][1]  # the client left
        assert (await client.call("POST", "/v1/completions", asked("Q", max_tokens=400), leave=-1))[0] == 499
        ids = llm.TextCodec.of(model.path).encode("QZ#!")
        assert alone[0][1] == {
            "prompt_tokens": len(ids), "completion_tokens": 4, "total_tokens": len(ids) + 4
        }  # fmt: skip
        assert alone[0][0][0]["finish_reason"] == "length"
        whole = json.loads((await client.call("POST", "/v1/chat/completions", chat))[1])
        said = whole["choices"][0]["message"]["content"]
        streaming = chat | {"stream": True, "stream_options": {"include_usage": True}}
        found = pieces((await client.call("POST", "/v1/chat/completions", streaming))[1])
        assert found[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
        assert "".join(p["choices"][0]["delta"].get("content", "") for p in found[:-1]) == said
        assert found[-1]["usage"] == whole["usage"]
        full = alone[5][0][0]["text"]
        for stop in {full[3:5], full[-2:], "never"}:
            body = bodies[5] | {"stop": [stop, "as well"]}
            (choice,) = (await text(body))[0]
            assert choice["text"] == full.split(stop)[0]
            streamed = pieces((await client.call("POST", "/v1/completions", body | {"stream": True}))[1])
            assert "".join(p["choices"][0]["text"] for p in streamed) == choice["text"]
        assert json.loads((await client.call("GET", "/v1/models"))[1])["data"][0]["id"] == "tiny"
        assert (await client.call("GET", "/v1/models/tiny"))[0] == 200
        assert "<title>" in (await client.call("GET", "/"))[1]

    with served(model) as client:
        asyncio.run(run(client))


@needs_server
def test_wrong_requests_get_an_error_object(model: llm.LanguageModel) -> None:
    user = {"role": "user", "content": "a"}
    wrong: list[tuple[int, str, Any]] = [
        (400, "", b"{"), (400, "", b"[" * 100_000), (400, "", []), (400, "", b'{"model": "\\ud800"}'),
        (404, "model", asked("A", model="other")), (400, "model", {}), (400, "prompt", asked("")),
        (400, "prompt", asked("A", prompt=["A", "B"])), (400, "prompt", asked("A", prompt=[1 << 70])),
        (400, "temperature", asked("A", temperature=3)), (400, "temperature", asked("A", temperature="1")),
        (400, "temperature", asked("A", temperature=float("nan"))), (400, "top_p", asked("A", top_p=0)),
        (400, "max_tokens", asked("A", max_tokens=0)), (400, "max_tokens", asked("A", max_tokens=True)),
        (400, "prompt", asked("A", max_tokens=10**30)), (400, "stop", asked("A", stop=["b"] * 5)),
        (400, "stop", asked("A", stop=[""])), (400, "n", asked("A", n=2)), (400, "n", asked("A", n=0)),
        (400, "logprobs", asked("A", logprobs=3)), (400, "logprobs", asked("A", logprobs=0)),
        (400, "best_of", asked("A", best_of=0)), (400, "max_token", asked("A", max_token=5)),
        (400, "repetition_penalty", asked("A", repetition_penalty=1.2)),
        (400, "messages", asked("A", messages=[])), (400, "seed", asked("A", seed=1.5)),
        (400, "stream_options", asked("A", stream_options={"include_usage": True})),
        (400, "stream", asked("A", stream=1)), (413, "", b" " * (5 << 20)),
    ]  # fmt: skip
    chats = [
        ("messages", []), ("messages.[0].role", [user | {"role": "me"}]), ("messages.[1]", [user, 1]),
        ("messages.[0].content", [user | {"content": [{"type": "image_url"}]}]), ("messages", "a"),
    ]  # fmt: skip

    async def run(client: Served) -> None:
        each = [(status, param, "/v1/completions", body) for status, param, body in wrong]
        each += [(400, p, "/v1/chat/completions", {"model": "tiny", "messages": m}) for p, m in chats]
        for status, param, path, body in each:
            found, text = await client.call("POST", path, body)
            assert found == status, text
            assert set(json.loads(text)["error"]) == {"message", "type", "param", "code"}
            assert json.loads(text)["error"]["param"] == (param or None), text
        plain = {"content-type": "text/plain"}
        assert (await client.call("POST", "/v1/completions", asked("A"), plain))[0] == 415
        assert (await client.call("GET", "/v1/models", headers={"host": "evil.example"}))[0] == 400
        for method, path, status in (("GET", "/v2", 404), ("GET", "/v1/completions", 405)):
            found, text = await client.call(method, path)
            assert (found, json.loads(text)["error"]["code"]) == (status, "unknown_url")

    with served(model) as client:
        asyncio.run(run(client))


@needs_server
def test_a_key_and_the_number_of_waiting_requests_are_limits(model: llm.LanguageModel) -> None:
    async def run(client: Served) -> None:
        key = {"authorization": "Bearer secret"}
        for headers in ({}, {"authorization": "Bearer other"}, {"authorization": "secret"}):
            found, text = await client.call("POST", "/v1/completions", asked("A"), headers)
            assert (found, json.loads(text)["error"]["code"]) == (401, "invalid_api_key")
        many = [client.call("POST", "/v1/completions", asked("A", max_tokens=40), key) for _ in range(12)]
        assert {status for status, _ in await asyncio.gather(*many)} == {200, 429}
        assert (await client.call("POST", "/v1/completions", asked("A"), key))[0] == 200

    with served(model, key="secret", waiting=2) as client:
        asyncio.run(run(client))


@needs_server
def test_the_address_is_had_before_the_model_is_loaded(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with listening("127.0.0.1", 0) as place:
        port = str(place.getsockname()[1])
        assert main(["serve", "no model", "--port", port]) == 2
    assert f"wanted to listen on 127.0.0.1, port {port}, saw: Address already" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert main(["serve", "no model"]) == 2
    assert "hcq[serve]" in capsys.readouterr().err


@needs_server
def test_the_code_of_an_error_does_not_depend_on_its_text(model: llm.LanguageModel) -> None:
    """A failed device is status 503, whatever its error says; too many tokens have a code of their own."""
    from frontend.llm.server import application

    async def answer(client: Served, **more: Any) -> tuple[int, Any]:
        status, text = await client.call("POST", "/v1/completions", asked("A", **more))
        return status, json.loads(text)["error"]

    with RunningBatch(model, rows=2) as batch:
        client = Served(application(batch, llm.TextCodec.of(model.path), "tiny"))
        status, error = asyncio.run(answer(client, max_tokens=10**30))
        assert (status, error["code"]) == (400, "context_length_exceeded")
        batch._error = UsageError("the context of the device is lost")
        status, error = asyncio.run(answer(client))
    assert (status, error["type"], error["code"], error["param"]) == (503, "server_error", None, None)
