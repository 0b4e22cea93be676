"""`python -m tests.fuzz.files [--cases 200] [--first 0] [--jobs 2] [--kind KIND] [--show SEED]`.

It changes files and texts of every kind that the project reads, and reads them: each must be read, or refused
by an error of the project (`hcq.HcqError`). Some changes keep the form: another number in a text, a value of
another class in the JSON of a header, a captured function with a digest that fits. Nothing read is launched.
It prints the seeds of other errors, and exits with 1 if there is one.

Not here: entries of the disk cache (`caches`), wrong calls (`tests/hcq/test_wrong_calls.py`).
"""

from __future__ import annotations

import contextlib
import functools
import json
import random
import re
import sys
import tempfile
import traceback
import warnings
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

import hcq
import interop
from frontend import Tensor, TinyJit, dtypes, nn
from frontend.capture import files
from frontend.nn.state.safetensors import write
from tests.conformance.kernels import image, ptx
from tests.fuzz import campaign
from tools.arguments import reported

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

DATA: Final = Path(__file__).parents[2] / "tests/frontend/data/checkpoints"
EXTREMES: Final = (
    *(0, 1, 2, 3, 127, 128, 255, 256, 65535, 2**31 - 1, 2**31),
    *(2**32 - 1, 2**32, 2**63 - 1, 2**63, 2**64 - 1, 2**70),
)
_VALUES: Final[tuple[Any, ...]] = (
    *EXTREMES,
    *(-1, 0.5, 1e308, float("inf"), True, None, "", "x", [], [[]], {}, [1, "a"], {"a": 1}),
)
"""Values of JSON."""
_HEAD: Final = 256
"""Bytes from the start in which every second change lies."""


def changed(r: random.Random, data: bytes) -> bytes:
    """Return bytes with one to three changes."""
    out = bytearray(data)
    for _ in range(r.choice((1, 1, 2, 3))):
        if not out:
            break
        at = r.randrange(min(len(out), _HEAD if r.random() < 0.5 else len(out)))
        r.choice(_CHANGES)(r, out, at)
    return bytes(out)


def _flip(r: random.Random, out: bytearray, at: int) -> None:
    out[at] ^= 1 << r.randrange(8)


def _number(r: random.Random, out: bytearray, at: int) -> None:
    size = r.choice((1, 2, 4, 8))
    at -= at % size
    value = r.choice((*EXTREMES, len(out), len(out) - 1, -1, r.getrandbits(64)))
    out[at : at + size] = (value % (1 << 8 * size)).to_bytes(size, "little")


def _cut(r: random.Random, out: bytearray, at: int) -> None:
    del out[at : r.choice((at + 1, at + 8, at + r.randrange(1, 200), len(out)))]


def _repeat(r: random.Random, out: bytearray, at: int) -> None:
    out[at:at] = out[at : at + r.choice((1, 8, 64))] * r.choice((1, 1, 2, 100))


def _move(r: random.Random, out: bytearray, at: int) -> None:
    begin, size = r.randrange(len(out)), r.choice((1, 4, 8, 40))
    out[at : at + size] = out[begin : begin + size]


def _clear(r: random.Random, out: bytearray, at: int) -> None:
    size = min(r.choice((1, 8, 64, 4096)), len(out) - at)
    out[at : at + size] = bytes([r.choice((0, 255))]) * size


def _decimal(r: random.Random, out: bytearray, _at: int) -> None:
    """Replace a number in a text."""
    found = list(re.finditer(rb"\d+", out))
    if found:
        where = r.choice(found)
        out[where.start() : where.end()] = str(r.choice((*EXTREMES, -1, "", "1.5", "0x10"))).encode()


def _word(r: random.Random, out: bytearray, _at: int) -> None:
    """Replace a word of a text by another of its words, or one character by another."""
    found = list(re.finditer(rb"[A-Za-z_.%$]\w*|[^\w\s]", out))
    if found:
        where, other = r.choice(found), r.choice(found)
        out[where.start() : where.end()] = other.group()


_CHANGES: Final[tuple[Callable[[random.Random, bytearray, int], None], ...]] = (
    _flip, _flip, _number, _number, _number, _cut, _repeat, _move, _clear, _decimal, _word, _word,
)  # fmt: skip


def reshaped(r: random.Random, value: Any) -> Any:
    """Return a value of JSON with one part replaced, removed or given twice."""
    if isinstance(value, (dict, list)) and value and r.random() < 0.93:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        key, out = r.choice(keys), value.copy()
        draw = r.random()
        if draw < 0.06:
            del out[key]
        elif draw < 0.1 and isinstance(out, list):
            out.insert(key, out[key])
        elif draw < 0.13:
            out[key] = out[r.choice(keys)]
        else:
            out[key] = reshaped(r, out[key])
        return out
    return r.choice(_VALUES)


def _header(r: random.Random, data: bytes) -> bytes:
    """Return a safetensors file with a change of its header's JSON, or of its bytes."""
    if r.random() < 0.5:
        return changed(r, data)
    end = 8 + int.from_bytes(data[:8], "little")
    text = json.dumps(reshaped(r, json.loads(data[8:end]))).encode()
    return len(text).to_bytes(8, "little") + text + data[end:]


def _forged(r: random.Random, data: bytes) -> bytes:
    """Return a captured function with changed facts or kernels, mostly with a digest that fits."""
    if r.random() < 0.15:
        return changed(r, data)
    with _file(data) as path, nn.state.safe_open(path) as file:
        facts = json.loads(file.metadata[files.KEY])
        parts = {name: file.raw(e.begin, e.end) for name, e in file.entries.items()}
    if r.random() < 0.7:
        facts = reshaped(r, facts)
    else:
        name = r.choice(list(parts))
        parts[name] = changed(r, parts[name])
    text = json.dumps(facts)
    digest = files._digest(text, parts.items())  # noqa: SLF001 - as a forger does
    each = {name: (dtypes.uint8, (len(part),), partial(bytes, part)) for name, part in parts.items()}
    with _file(b"") as path:
        write(each, path, {files.KEY: text, files.DIGEST: digest})
        forged: bytes = path.read_bytes()
        return forged


@contextlib.contextmanager
def _file(data: bytes) -> Any:
    with tempfile.TemporaryDirectory(prefix="hcq-fuzz-files-") as folder:
        path = Path(folder) / "file"
        path.write_bytes(data)
        yield path


def _saved() -> tuple[bytes, ...]:
    with _file(b"") as path:
        names = ("int8", "float16", "float32", "int64")
        tensors = {name: Tensor(np.arange(6).astype(name)) for name in names}
        nn.state.safe_save({"empty": Tensor(np.zeros((0, 3), "f")), **tensors}, path, metadata={"a": "b"})
        return (path.read_bytes(),)


def _captured() -> tuple[bytes, ...]:
    layer, count = nn.Linear(4, 3), Tensor(np.zeros(1, "f")).realize()

    @TinyJit
    def step(x: Tensor, given: dict[str, Any]) -> tuple[Tensor, Tensor]:
        count.assign(count + 1).realize()
        return layer(x).relu().realize(), (x * given["scale"]).sum().realize()

    for _ in range(3):
        step(Tensor(np.ones((2, 4), "f")), {"scale": 2.0})
    with _file(b"") as path:
        step.save(path, state={"weight": layer.weight})
        return (path.read_bytes(),)


def _read_safetensors(data: bytes) -> None:
    with _file(data) as path:
        nn.state.safe_metadata(path)
        with nn.state.safe_open(path) as file:
            for tensor in file.values():
                tensor.numpy()


def _read_checkpoint(data: bytes) -> None:
    with _file(data) as path:
        nn.state.torch_load(path)


def _read_gguf(data: bytes) -> None:
    with _file(data) as path:
        nn.state.gguf_load(path)


def _read_captured(data: bytes) -> None:
    with _file(data) as path:
        TinyJit.load(path)


@functools.cache
def _device(name: str) -> hcq.Device:
    return hcq.open(name, validate=False)


def _loads(name: str, arguments: Sequence[str] | None = None, text: str = "") -> Callable[[bytes], None]:
    """Return a function that loads an image for a device, and its code to the device."""

    def load(data: bytes) -> None:
        device = _device(name)
        kernel = interop.load(device, data, entry="mix", arguments=arguments, ptx=text)
        device.load(replace(image("mix", device.info), code=kernel.code))

    return load


def _image(name: str) -> tuple[bytes, ...]:
    return (image("mix", _device(name).info).code,)


_ARGUMENTS: Final = ("pointer", "pointer", "i32")
KINDS: Final[dict[str, tuple[Callable[[], tuple[bytes, ...]], Any, Callable[[bytes], None]]]] = {
    "safetensors": (_saved, _header, _read_safetensors),
    "checkpoint": (
        lambda: tuple(path.read_bytes() for path in sorted(DATA.glob("*.pt"))), changed, _read_checkpoint,
    ),
    "legacy": (lambda: ((DATA / "legacy.pt").read_bytes(),), changed, _read_checkpoint),
    "gguf": (lambda: ((DATA / "small.gguf").read_bytes(),), changed, _read_gguf),
    "captured": (_captured, _forged, _read_captured),
    "host": (lambda: _image("cpu"), changed, _loads("cpu", _ARGUMENTS)),
    "cubin": (lambda: _image("nv-emu"), changed, _loads("nv-emu", text=ptx("mix", "sm_90"))),
    "ptx": (lambda: (ptx("mix", "sm_90").encode(),), changed, _loads("nv-emu")),
    "amdgpu": (lambda: _image("amd-emu"), changed, _loads("amd-emu", _ARGUMENTS)),
}  # fmt: skip
"""Kind -> (files that are read, a change, the reader)."""


@functools.cache
def whole(kind: str) -> tuple[bytes, ...]:
    """Return the unchanged files of a kind."""
    return KINDS[kind][0]()


def mutant(seed: int, kind: str) -> bytes:
    """Return the changed file of a seed."""
    r = random.Random(seed)  # noqa: S311 - cases, not secrets
    out: bytes = KINDS[kind][1](r, r.choice(whole(kind)))
    return out


def untyped(first: int, count: int, kind: str) -> dict[int, str]:
    """Read the changed files of `count` seeds; return the errors that are not the project's, by seed."""
    found = {}
    for seed in range(first, first + count):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                KINDS[kind][2](mutant(seed, kind))
        except hcq.HcqError:
            continue
        except Exception:  # noqa: BLE001 - any other error is a finding
            found[seed] = f"{kind}, seed {seed}:\n{traceback.format_exc(limit=-5)}"
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Run the tool and return its exit status."""
    parser = campaign.parser("tests.fuzz.files", __doc__)
    parser.add_argument("--kind", choices=sorted(KINDS), default="safetensors", help="(default safetensors)")
    options = parser.parse_args(argv)
    if options.show is not None:
        sys.stdout.buffer.write(mutant(options.show, options.kind))
        return 0
    verb = f"changed files of kind {options.kind} are read or refused"
    return campaign.run(partial(untyped, kind=options.kind), options, verb)


if __name__ == "__main__":
    sys.exit(reported(main))
