"""Requests and answers of OpenAI's interface of chat and text completions: checked fields, objects, errors.

The fields are those of https://platform.openai.com/docs/api-reference/chat and .../completions, and `top_k`.
Fields that are not known, and values that are not supported, are refused; `_IGNORED` change no answer.

Not here: connections (`server`). Next: `batching`, which computes.
"""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from frontend.llm.sampling import Sampling
from hcq.errors import UsageError

if TYPE_CHECKING:
    from frontend.llm.tokenizer import TextCodec

Kind = Literal["chat.completion", "text_completion"]

_REFUSED: Final = (
    "best_of", "echo", "frequency_penalty", "function_call", "functions", "logit_bias", "logprobs",
    "presence_penalty", "suffix", "tools", "top_logprobs", "audio", "prediction",
)  # fmt: skip
"""Fields that are refused unless they have a value without effect."""
_IGNORED: Final = (
    "user", "metadata", "store", "service_tier", "parallel_tool_calls", "safety_identifier",
    "prompt_cache_key", "prompt_cache_retention",
)  # fmt: skip
_READ: Final = {
    "chat.completion": ("messages", "max_completion_tokens"), "text_completion": ("prompt",),
    "both": ("model", "max_tokens", "temperature", "top_k", "top_p", "seed", "stop", "stream",
             "stream_options"),
}  # fmt: skip
_PLAIN: Final[dict[str, tuple[Any, ...]]] = {
    "best_of": (1,), "tool_choice": ("none", "auto"), "response_format": ({"type": "text"},), "n": (1,),
    "modalities": (["text"],),
}  # fmt: skip
"""Further values without effect, beside null, false, 0 and what is empty."""
_ROLES: Final = ("system", "developer", "user", "assistant")
_MOST_STOPS: Final = 4
_HOTTEST: Final = 2


class RequestError(UsageError):
    """An error that a client gets, with the status of HTTP and the fields of OpenAI's error object."""

    def __init__(
        self, message: str, *, param: str | None = None, status: int = 400, code: str | None = None,
        kind: str = "invalid_request_error",
    ) -> None:  # fmt: skip
        super().__init__(message)
        self.param, self.status, self.code, self.kind = param, status, code, kind

    def body(self) -> dict[str, Any]:
        """Return the JSON of the answer."""
        error = {"message": str(self), "type": self.kind, "param": self.param, "code": self.code}
        return {"error": error}


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a client wants, checked."""

    kind: Kind
    ids: list[int]
    most: int | None
    """Tokens at most; None: as many as the context has."""
    sampling: Sampling
    seed: int | None
    stops: tuple[str, ...]
    stream: bool
    usage: bool
    """Whether the stream ends with the numbers of tokens."""


def _field(body: dict[str, Any], name: str, kinds: tuple[type, ...], wanted: str, default: Any) -> Any:
    value = body.get(name)
    if value is None:
        return default
    if type(value) not in kinds:
        raise RequestError(f"{name}: wanted {wanted}, saw {type(value).__name__}", param=name)
    return value


def wanted(kind: Kind, body: Any, codec: TextCodec, name: str) -> Wanted:
    """Return what a JSON body asks for, with the prompt as ids. Raises `RequestError`."""
    if not isinstance(body, dict):
        raise RequestError(f"wanted a JSON object, saw {type(body).__name__}")
    model = _field(body, "model", (str,), "the name of a model", None)
    if model is None:
        raise RequestError("model: wanted the name of a model, saw none", param="model")
    if model != name:
        text = f"the model {model!r} does not exist; this server has {name!r}"
        raise RequestError(text, param="model", status=404, code="model_not_found")
    for field, value in body.items():
        if field in _READ["both"] or field in _READ[kind] or field in _IGNORED:
            continue
        if field not in _REFUSED and field not in _PLAIN:
            raise RequestError(f"unrecognized request argument: {field[:80]}", param=field[:80])
        counts = field in {"n", "best_of"} or (field == "logprobs" and value is not False)
        without = (None, *_PLAIN.get(field, ()), *(() if counts else (False, 0, [], {}, "")))
        if value not in without:
            raise RequestError(f"{field}: this server does not support {str(value)[:80]!r}", param=field)
    ids = _of_messages(body, codec) if kind == "chat.completion" else _of_prompt(body, codec)
    options = _field(body, "stream_options", (dict,), "an object", {})
    if options and not body.get("stream"):
        raise RequestError("stream_options: wanted only with stream", param="stream_options")
    name_of_most = "max_tokens" if body.get("max_completion_tokens") is None else "max_completion_tokens"
    most = _field(body, name_of_most, (int,), "a whole number", 16 if kind == "text_completion" else None)
    if most is not None and most < 1:
        raise RequestError(f"{name_of_most}: wanted at least 1, saw {most}", param=name_of_most)
    seed = _field(body, "seed", (int,), "a whole number", None)
    stream = _field(body, "stream", (bool,), "true or false", default=False)
    usage = _field(options, "include_usage", (bool,), "true or false", default=False)
    seed = None if seed is None else seed & (2**64 - 1)
    return Wanted(kind, ids, most, _sampling(body), seed, _stops(body), stream, usage)


def _sampling(body: dict[str, Any]) -> Sampling:
    number = (int, float)
    temperature = _field(body, "temperature", number, "a number", 1.0)
    if not 0 <= temperature <= _HOTTEST:
        raise RequestError(f"temperature: wanted 0 to 2, saw {temperature}", param="temperature")
    top_k = _field(body, "top_k", (int,), "a whole number", 0)
    top_p = _field(body, "top_p", number, "a number", 1.0)
    try:
        return Sampling(temperature=temperature, top_k=top_k, top_p=top_p)
    except UsageError as error:
        raise RequestError(str(error), param="top_k" if "top_k" in str(error) else "top_p") from None


def _stops(body: dict[str, Any]) -> tuple[str, ...]:
    found = _field(body, "stop", (str, list), "a text or a list of them", [])
    found = [found] if isinstance(found, str) else found
    if len(found) > _MOST_STOPS or not all(isinstance(s, str) and s for s in found):
        raise RequestError(f"stop: wanted up to {_MOST_STOPS} texts that are not empty", param="stop")
    return tuple(found)


def _of_messages(body: dict[str, Any], codec: TextCodec) -> list[int]:
    messages = _field(body, "messages", (list,), "a list of messages", [])
    if not messages:
        raise RequestError("messages: wanted at least one message", param="messages")
    found = []
    for i, message in enumerate(messages):
        where = f"messages.[{i}]"
        if not isinstance(message, dict):
            raise RequestError(f"{where}: wanted an object, saw {type(message).__name__}", param=where)
        role = message.get("role")
        if role not in _ROLES:
            raise RequestError(f"{where}.role: wanted one of {', '.join(_ROLES)}", param=f"{where}.role")
        text = _text(message.get("content"), f"{where}.content")
        found.append({"role": "system" if role == "developer" else role, "content": text})
    try:
        return codec.chat(found)
    except UsageError as error:
        raise RequestError(str(error), param="messages") from None


def _text(content: Any, where: str) -> str:
    """Return the text of a message: a text, or a list of parts of the type text."""
    if isinstance(content, str):
        return content
    parts: list[Any] = content if isinstance(content, list) else [None]
    if not all(
        isinstance(p, dict) and p.get("type") == "text" and isinstance(p.get("text"), str) for p in parts
    ):
        raise RequestError(f"{where}: wanted a text, or a list of parts of the type text", param=where)
    return "".join([p["text"] for p in parts])


def _of_prompt(body: dict[str, Any], codec: TextCodec) -> list[int]:
    prompt = _field(body, "prompt", (str, list), "a text or a list of ids", None)
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
        prompt = prompt[0]
    if isinstance(prompt, str):
        return codec.encode(prompt)
    if not isinstance(prompt, list) or not all(type(n) is int for n in prompt):
        raise RequestError("prompt: wanted one text, or one list of ids", param="prompt")
    return list(prompt)


class Reply:
    """The objects of one answer: a whole one, or the chunks of a stream."""

    def __init__(self, asked: Wanted, name: str) -> None:
        self.asked, self.name = asked, name
        self.id = f"{'chatcmpl' if asked.kind == 'chat.completion' else 'cmpl'}-{uuid.uuid4().hex}"
        self.created = int(time.time())
        self.tokens = 0
        """Tokens of the answer."""

    def usage(self) -> dict[str, int]:
        """Return the numbers of tokens."""
        prompt = len(self.asked.ids)
        whole = prompt + self.tokens
        return {"prompt_tokens": prompt, "completion_tokens": self.tokens, "total_tokens": whole}

    def _object(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        head = {"id": self.id, "object": kind, "created": self.created, "model": self.name}
        return {**head, "choices": choices}

    def whole(self, text: str, finish: str) -> dict[str, Any]:
        """Return the answer as one object."""
        chat = self.asked.kind == "chat.completion"
        message = {"role": "assistant", "content": text, "refusal": None}
        said = {"message": message} if chat else {"text": text}
        choice = {"index": 0, **said, "logprobs": None, "finish_reason": finish}
        return {**self._object(self.asked.kind, [choice]), "usage": self.usage()}

    def chunk(self, text: str | None, finish: str | None = None, *, first: bool = False) -> dict[str, Any]:
        """Return a piece of the stream; `first`: the one that names the role of a chat."""
        if self.asked.kind == "chat.completion":
            delta = ({"role": "assistant"} if first else {}) | ({} if text is None else {"content": text})
            choice, kind = {"index": 0, "delta": delta}, "chat.completion.chunk"
        else:
            choice, kind = {"index": 0, "text": text or ""}, "text_completion"
        found = self._object(kind, [choice | {"logprobs": None, "finish_reason": finish}])
        return found | {"usage": None} if self.asked.usage else found

    def last(self) -> dict[str, Any]:
        """Return the piece that has the numbers of tokens."""
        kind = "chat.completion.chunk" if self.asked.kind == "chat.completion" else "text_completion"
        return self._object(kind, []) | {"usage": self.usage()}
