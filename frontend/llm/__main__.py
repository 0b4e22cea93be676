"""Talk with a language model, serve it, or measure it.

    hcq llm chat PATH              # a folder with config.json and safetensors, or a GGUF file
    hcq llm chat PATH --prompt "Once upon a time"      # goes on with a text, and ends
    hcq llm serve PATH --port 8000                     # OpenAI's interface, on this machine
    hcq llm bench PATH --tokens 64 --json              # ids alone: no tokenizer is needed

`chat` reads a line at a time, and answers until the model ends its answer. `bench` prints the time of a
prompt and of each further token, and the share of the memory's read bandwidth, measured between the tokens,
that reading each weight once a token takes.

Not here: the model (`model`), texts (`tokenizer`), the interface that is served (`server`).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from compiler.dtype import dtypes
from frontend.capture.jit import TinyJit
from frontend.llm.batching import RunningBatch
from frontend.llm.loading import load
from frontend.llm.server import LOCAL, application, listening, serve
from frontend.llm.tokenizer import TextCodec
from frontend.tensor import Tensor
from hcq.cli import prog
from hcq.errors import HcqError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from frontend.llm.model import LanguageModel

_READ_BYTES = 1 << 28
"""Bytes of the sum that measures the bandwidth."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; return the exit status: 2 where it could not be done."""
    parser = argparse.ArgumentParser(
        prog=prog("frontend.llm"), description="Talk with a language model, serve or measure it."
    )
    parser.add_argument("command", choices=("chat", "serve", "bench"))
    parser.add_argument("path", help="a folder with config.json and safetensors files, or a GGUF file")
    parser.add_argument("--device", help="the device; the default one if left out")
    parser.add_argument("--tokens", type=int, default=256, help="most tokens of an answer, or to measure")
    parser.add_argument("--prompt", help="chat: a text to go on with; bench: the number of its tokens")
    parser.add_argument("--temperature", type=float, default=0.7)
    parser.add_argument("--top-k", type=int, default=0)
    parser.add_argument("--top-p", type=float, default=0.95)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--host", default="127.0.0.1", help="serve: the address; others need --key-file")
    parser.add_argument("--port", type=int, default=8000, help="serve: the port; 0 takes a free one")
    parser.add_argument("--key-file", type=Path, help="serve: a file with the key that clients must send")
    parser.add_argument("--name", help="serve: the name of the model; that of the file if left out")
    parser.add_argument("--rows", type=int, default=8, help="serve: requests that run at once")
    parser.add_argument("--waiting", type=int, default=64, help="serve: requests that wait, at most")
    parser.add_argument("--context", type=int, help="serve: tokens of a request, at most")
    parser.add_argument("--json", action="store_true", help="bench: print one JSON object")
    options = parser.parse_args(argv)
    if not 0 <= options.port < 1 << 16:
        parser.error(f"--port: wanted 0 to 65535, saw {options.port}")
    if options.command == "bench" and not (options.prompt or "1").isdecimal():
        parser.error(f"--prompt: bench wanted a number of tokens, saw {options.prompt!r}")
    try:
        if options.command == "serve":
            return _serve(options)
        model, codec = _loaded(options)
        return _bench(model, options) if codec is None else _chat(model, codec, options)
    except (HcqError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 2


def _loaded(options: Any) -> tuple[LanguageModel, TextCodec | None]:
    """Return the model, and what reads its texts unless only ids are measured."""
    codec = TextCodec.of(options.path) if options.command != "bench" else None
    begin = time.perf_counter()
    model = load(options.path, device=options.device, progress=_bar if sys.stderr.isatty() else None)
    sys.stderr.write(f"{model!r}, loaded in {time.perf_counter() - begin:.1f} s\n")
    return model, codec


def _bar(done: int, total: int) -> None:
    """Show how much of the weights has been read."""
    filled = 40 * done // max(1, total)
    end = "\n" if done == total else ""
    sys.stderr.write(f"\r[{'#' * filled}{' ' * (40 - filled)}] {done / 1e6:,.0f} MB{end}")


def _answer(model: LanguageModel, codec: TextCodec, ids: list[int], options: Any) -> str:
    """Print an answer as it is computed; return it."""
    tokens = model.generate(
        ids, max_tokens=options.tokens, temperature=options.temperature, top_k=options.top_k,
        top_p=options.top_p, seed=options.seed,
    )  # fmt: skip
    pieces = []
    for piece in codec.texts(tokens):
        pieces.append(piece)
        sys.stdout.write(piece)
        sys.stdout.flush()
    sys.stdout.write("\n")
    return "".join(pieces)


def _chat(model: LanguageModel, codec: TextCodec, options: Any) -> int:
    messages: list[dict[str, str]] = []
    if options.prompt is not None:
        _answer(model, codec, codec.encode(options.prompt), options)
        return 0
    while True:
        sys.stderr.write("> ")
        sys.stderr.flush()
        line = sys.stdin.readline()
        if not line:
            return 0
        messages.append({"role": "user", "content": line.strip()})
        said = _answer(model, codec, codec.chat(messages), options)
        messages.append({"role": "assistant", "content": said})


def _key(options: Any) -> str | None:
    """Return the key of the file. Raises `UsageError` without one for an address that others can reach."""
    try:
        key = None if options.key_file is None else options.key_file.read_text().strip()
    except (OSError, ValueError) as error:
        raise UsageError(f"--key-file: wanted a file with a text, saw: {error}") from None
    if key == "" or (key is None and options.host not in LOCAL):
        raise UsageError(
            f"wanted a key, because others can reach {options.host}\n"
            "hint: --key-file FILE, with a text that clients send as their API key"
        )
    return key


def _serve(options: Any) -> int:
    key, hosts = _key(options), LOCAL if options.host in LOCAL else ("*",)
    with listening(options.host, options.port) as place:
        model, codec = _loaded(options)
        assert codec is not None, "a server has texts"
        name = options.name or Path(options.path).resolve().stem
        rows = {"rows": options.rows, "waiting": options.waiting, "context": options.context}
        with RunningBatch(model, **rows) as batch:
            app = application(batch, codec, name, key=key, hosts=hosts)
            sys.stderr.write(f"{name} on http://{options.host}:{place.getsockname()[1]}/v1\n")
            serve(app, place)
    return 0


def _bench(model: LanguageModel, options: Any) -> int:
    """Print the times of a prompt and of tokens."""
    count = int(options.prompt or 128)
    ids = [n % model.description.vocabulary for n in range(1, count + 1)]
    for _ in range(3):  # the first run compiles, the second captures
        list(model.generate(ids, max_tokens=3, stop=()))
        model.forget()
    begin = time.perf_counter()
    next(iter(model.generate(ids, max_tokens=1, stop=())))
    prompt_s = time.perf_counter() - begin
    model.forget()
    read = _reader(model.decoder.device)
    tokens, each, reads = model.generate(ids, max_tokens=options.tokens + 1, stop=()), [], []
    next(tokens)
    for n in range(options.tokens):
        begin = time.perf_counter()
        if next(tokens, None) is None:
            raise UsageError(f"bench --tokens: wanted at most {n} after a prompt of {count}")
        each.append(time.perf_counter() - begin)
        if n % 8 == 0:
            begin = time.perf_counter()
            read().numpy()
            reads.append(time.perf_counter() - begin)
    size, bandwidth = model.decoder.read_bytes, _READ_BYTES / min(reads)
    found = {
        "model": repr(model), "prompt_tokens": count, "prompt_s": prompt_s, "tokens": options.tokens,
        "token_ms_median": median(each) * 1e3, "token_ms_least": min(each) * 1e3,
        "tokens_per_s": 1 / median(each), "weight_bytes_per_token": size,
        "read_bytes_per_s": bandwidth, "share_median": size / median(each) / bandwidth,
        "share_best": size / min(each) / bandwidth,
    }  # fmt: skip
    lines = json.dumps(found) if options.json else "\n".join(f"{k:24s}{_text(v)}" for k, v in found.items())
    sys.stdout.write(f"{lines}\n")
    return 0


def _text(value: Any) -> str:
    return f"{value:,.4g}" if isinstance(value, float) else str(value)


def _reader(device: str) -> Any:
    """Return a captured sum of `_READ_BYTES` bytes, as fast as the device reads."""
    data = Tensor.zeros(_READ_BYTES // 4, dtype=dtypes.float32, device=device).clone().realize()
    read = TinyJit(lambda: data.sum())  # noqa: PLW0108 - a capture is of a Python function
    for _ in range(3):
        read().numpy()
    return read


if __name__ == "__main__":
    sys.exit(main())
