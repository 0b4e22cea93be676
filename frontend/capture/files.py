"""A captured function in a file: `TinyJit.save` and `TinyJit.load`.

The file is a safetensors file. Its metadata have one text, `captured`, a JSON object with

- the version of this layout, the device and its architecture, and the digest of the compiler;
- the arguments and results: containers, dtypes, shapes, and which are assigned to;
- the launches in order: kernel, workgroups, and for each pointer a number of memory.

A second text, `digest`, is the SHA-256 of the first text and of all tensors. The tensors are arrays of bytes:
`kernel.N`, the compiled kernel with its launch (`compiler.image`); `ast.N`, the text of its AST
(`compiler.ir.serialize`); `memory.N`, the outside memory that the function reads or assigns to. Each kernel
is stored once. If the digest of the compiler in the file is that of this compiler, the compiled kernels are
used; otherwise their ASTs are compiled, through the cache of kernels.

Reading a file runs no code of the file, and no pickle. Its kernels run on the device when the function is
called.

Not here: nested containers (`frontend.containers`). Next: `captured`, the replay.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from compiler.cache import compiler_digest
from compiler.compile import compile_many
from compiler.dtype import by_name, dtypes
from compiler.image import CompiledKernel, MalformedError, from_bytes, to_bytes
from compiler.ir.serialize import kernel_key, parse_kernel
from compiler.ir.verify import verify_kernel
from frontend.arguments.checks import Size
from frontend.capture.captured import Assembly, Captured, own, settle
from frontend.containers import BoundPlaceholder, Placeholder, SizedPlaceholder
from frontend.device import LOCK, Device, TensorDevice
from frontend.evaluation.expr import PARAM, Leaves, TensorExpr, leaf_expr
from frontend.evaluation.launch import KernelLaunch
from frontend.evaluation.limits import Checks
from frontend.evaluation.plan import scheduled
from frontend.evaluation.printing import described
from frontend.evaluation.realize import realize_many
from frontend.evaluation.storage import Leaf
from frontend.evaluation.views import attached, owns
from frontend.nn.state.safetensors import SafeFile, safe_open, write
from frontend.tensor import Tensor
from frontend.variable import Variable
from hcq.config import config
from hcq.errors import CompileError, UsageError, UsageTypeError

if TYPE_CHECKING:
    from pathlib import Path

    import hcq
    from compiler.ir.uop import UOp

FORMAT: Final = 1
"""The version of the layout; another one is refused."""
KEY: Final = "captured"
DIGEST: Final = "digest"


class Unsaved(Checks):
    """The checks of indices and divisors of a loaded function, which its file does not hold."""

    def verify(self, leaves: Leaves, value: Callable[[TensorExpr, Leaves], memoryview]) -> None:  # noqa: ARG002
        """Raise `UsageError`, as a function from a file cannot be validated."""
        raise UsageError(
            "a captured function from a file has no checks of indices and divisors\n"
            "hint: without HCQ_VALIDATE=1 it runs; or validate the function itself"
        )


def encoded(value: Any, what: str) -> Any:
    """Return a container of placeholders, numbers, texts and None as JSON values.

    Raises `UsageError` for another value; `what` names the argument or result in the message.
    """
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if value.__class__ is float:
        return {"float": value.hex()}
    if value.__class__ is Placeholder:
        return {"tensor": value.number}
    if value.__class__ is BoundPlaceholder:
        v = value.variable
        return {"bound": [value.number, v.name, v.low, v.high, value.factor, value.offset]}
    if value.__class__ is SizedPlaceholder:
        return {"sized": [encoded(value.whole, what), [encoded(n, what) for n in value.sizes]]}
    if value.__class__ in {list, tuple, Size}:
        return {"list" if value.__class__ is list else "tuple": [encoded(v, what) for v in value]}
    if value.__class__ is dict:
        return {"dict": [[encoded(k, what), encoded(v, what)] for k, v in value.items()]}
    raise UsageError(
        f"{what} has a {type(value).__name__}, which a file of a captured function cannot hold; wanted "
        "tensors, numbers, texts, and tuples, lists and dictionaries of them"
    )


def decoded(value: Any) -> Any:
    """Return the container from which `encoded` made a JSON value.

    Raises `ValueError` for other JSON (`UsageError`, a subclass, for bounds of a variable that do not fit).
    """
    if value is None or isinstance(value, (bool, int, str)):
        return value
    match value:
        case {"float": str(text)}:
            return float.fromhex(text)
        case {"tensor": int(number)}:
            return Placeholder(number)
        case {"bound": [int(number), str(name), int(low), int(high), int(factor), int(offset)]}:
            return BoundPlaceholder(number, Variable(name, low, high), factor, offset)
        case {"sized": [whole, [*sizes]]}:
            return SizedPlaceholder(decoded(whole), tuple([decoded(n) for n in sizes]))
        case {"list": [*parts]}:
            return [decoded(v) for v in parts]
        case {"tuple": [*parts]}:
            return tuple([decoded(v) for v in parts])
        case {"dict": [*pairs]}:
            return {decoded(k): decoded(v) for k, v in pairs}
    raise ValueError(f"{str(value)[:80]} is no argument or result")


def _kind(e: TensorExpr) -> list[Any]:
    return [e.dtype.name, list(e.shape)]


def save(path: str | Path, captured: Captured, args: Any, state: Mapping[str, Tensor]) -> None:
    """Write a captured form to a file. `args` are the containers of its arguments.

    Raises `UsageError` and `OSError` as `TinyJit.save`.
    """
    if captured.device.devices:
        raise UsageError(
            f"a captured function on a mesh, {captured.device.name}, cannot be saved: a file has the kernels "
            "of one device\nhint: save the model's state, and capture again"
        )
    if captured.relations:
        raise UsageError(
            f"results {[i for i, _ in captured.relations[0]]} share elements, which a file does not hold\n"
            "hint: return a clone() instead of a view"
        )
    with LOCK:
        settle()
        _check_state(state)
        state = {name: attached(t) for name, t in state.items()}
        realize_many(list(state.values()))
        facts, parts = _Writer(captured, state).file(args)
    text = json.dumps(facts, separators=(",", ":"))
    each = {n: (dtypes.uint8, (len(data),), partial(bytes, data)) for n, data in parts.items()}
    write(each, path, {KEY: text, DIGEST: _digest(text, parts.items())})


def _check_state(state: object) -> None:
    if state is not None and not isinstance(state, Mapping):
        raise UsageTypeError(f"state=: wanted a dictionary of tensors, saw a {type(state).__name__}")


def _digest(text: str, parts: Iterable[tuple[str, bytes]]) -> str:
    found = hashlib.sha256(text.encode())
    for name, data in parts:
        found.update(f"\n{name} {len(data)}\n".encode())
        found.update(data)
    return found.hexdigest()


@dataclass(slots=True)
class _Writer:
    """The parts of a file, collected."""

    captured: Captured
    state: Mapping[str, Tensor]
    parts: dict[str, bytes] = field(default_factory=dict)
    kernels: dict[Any, int] = field(default_factory=dict)
    """(code, workgroups, threads) of each kernel -> its number."""
    asts: dict[Any, list[UOp]] = field(default_factory=dict)

    def file(self, args: Any) -> tuple[dict[str, Any], dict[str, bytes]]:
        """Return the JSON object of the file, and its byte arrays by name."""
        c = self.captured
        work = c.assembly
        states = {b: i for i, (_, b) in enumerate(c.states)}
        facts = {
            "format": FORMAT, "device": c.device.name, "arch": c.device.arch,
            "compiler": compiler_digest(), "label": "" if work is None else work.label,
            "arguments": encoded(args, "an argument"), "result": encoded(c.nest, "the result"),
            "expect": [_kind(e) for e in c.expect], "inputs": c.inputs, "draws": c.draws, "sizes": c.sizes,
            "assigned": c.assigned, "large": c.large, "writes": c.writes, "checks": len(c.checks),
            "results": [self._result(r) for r in c.results],
            "launches": [] if work is None else [self._launch(k) for k in work.kernels],
            "partial": [] if work is None else [i for i, k in enumerate(work.kernels) if k.partial],
            "params": [] if work is None else list(work.params),
        }  # fmt: skip
        outside = {} if work is None else work.fixed
        names = {t.leaves[0].buffer: n for n, t in self.state.items() if t.expr.op is PARAM}
        each = dict.fromkeys([*outside.values(), *states])
        keys: dict[Any, list[Any]] = {}
        for key, b in outside.items():
            keys.setdefault(b, []).append(key)
        facts["memory"] = [
            self._memory(n, b, keys.get(b, []), states.get(b), names.get(b)) for n, b in enumerate(each)
        ]
        return facts, self.parts

    def _result(self, result: Any) -> list[Any]:
        if isinstance(result, tuple):
            return ["new", result[1], *_kind(result[0])]
        if isinstance(result, int):
            return ["argument", result]
        return ["state", next(i for i, (t, _) in enumerate(self.captured.states) if t is result)]

    def _launch(self, kernel: KernelLaunch) -> list[Any]:
        number = None if kernel.program is None else self._kernel(kernel)
        return [number, list(kernel.memory), list(kernel.sizes), list(kernel.stores)]

    def _kernel(self, kernel: KernelLaunch) -> int:
        assert kernel.program is not None  # checked by the caller
        assert kernel.origin is not None  # every kernel of a plan has one
        image = kernel.program.image
        number = self.kernels.setdefault((image.code, kernel.groups, kernel.threads), len(self.kernels))
        if f"kernel.{number}" not in self.parts:
            made = CompiledKernel(image, kernel.groups, kernel.threads)
            self.parts[f"kernel.{number}"] = to_bytes(made)
            self.parts[f"ast.{number}"] = self._ast(*kernel.origin).encode()
        return number

    def _ast(self, structure: Any, at: int) -> str:
        """Return the text of kernel `at` of a plan, scheduled again; of a `structure` from a file, it."""
        if isinstance(structure, str):
            return structure
        if structure not in self.asts:
            items = scheduled(structure[0], structure[1], self.captured.device.arch, config())[1]
            self.asts[structure] = [item.ast for item in items]
        return kernel_key(self.asts[structure][at])

    def _memory(
        self, number: int, buffer: hcq.Buffer, keys: list[int], state: int | None, name: str | None
    ) -> dict[str, Any]:
        """Store the contents of outside memory; return its facts."""
        read = self.captured.device.read
        self.parts[f"memory.{number}"] = bytes(read(buffer, buffer.size))
        t = self.state[name] if name is not None else None
        t = self.captured.states[state][0] if state is not None else t
        kind = None if t is None else _kind(t.expr)
        return {"keys": keys, "state": state, "name": name, "kind": kind}


def load(
    path: str | Path, device: str | None, state: Mapping[str, Tensor] | None
) -> tuple[Captured, Any, dict[str, Tensor]]:
    """Return the captured form of a file, the containers of its arguments, and its named tensors.

    Raises `UsageError` and `OSError` as `TinyJit.load`.
    """
    _check_state(state)
    with safe_open(path) as file:
        text = file.metadata.get(KEY)
        if not isinstance(text, str):
            raise UsageError(f"{path} holds no captured function; TinyJit.save writes one")
        parts = ((n, file.raw(e.begin, e.end)) for n, e in file.entries.items())
        if _digest(text, parts) != file.metadata.get(DIGEST):
            raise UsageError(f"{path} is damaged: its digest is not that of its contents; save it again")
        try:
            facts = json.loads(text)
            if not isinstance(facts, dict) or facts.get("format") != FORMAT:
                found = facts.get("format") if isinstance(facts, dict) else facts
                raise UsageError(f"{path}: wanted version {FORMAT} of the layout, saw {found!r}; save again")
            opened = Device[device if device is not None else str(facts["device"])]
            if opened.arch != facts["arch"]:
                raise UsageError(
                    f"{path} was captured for {facts['arch']}, {opened.name} is {opened.arch}\n"
                    "hint: capture the function there, and save it again"
                )
            with LOCK:
                return _Reader(file, facts, opened, state).function()
        except (
            *(LookupError, ValueError, TypeError, AttributeError),
            *(ArithmeticError, RecursionError, CompileError),
        ) as error:
            if isinstance(error, UsageError):
                raise
            raise UsageError(f"{path} is no whole file of a captured function: {error!r}") from error


class _Reader:
    """Makes a captured form from the facts and parts of a file."""

    def __init__(
        self, file: SafeFile, facts: dict[str, Any], device: TensorDevice, state: Mapping[str, Tensor] | None
    ) -> None:
        self.file, self.facts, self.device, self.state = file, facts, device, state
        self.named: dict[str, Tensor] = {}
        self.fixed: dict[Hashable, hcq.Buffer] = {}
        self.states: dict[int, tuple[Tensor, hcq.Buffer]] = {}

    def function(self) -> tuple[Captured, Any, dict[str, Tensor]]:
        """Return the result of `load`."""
        facts = self.facts
        if self.state is not None:
            missing = sorted({m["name"] for m in facts["memory"]} - {None} - self.state.keys())
            if missing:
                raise UsageError(f"{self.file.path}: state= has no {', '.join(missing)}, which it uses")
        for n, memory in enumerate(facts["memory"]):
            self._memory(n, memory)
        kernels = self._kernels()
        params = [(int(key), int(size)) for key, size in facts["params"]]
        work = Assembly(kernels, params, self.fixed, str(facts["label"])) if kernels else None
        states = [self.states[i] for i in range(len(self.states))]
        captured = Captured(
            device=self.device,
            kernels=len(kernels),
            expect=[self._expr(kind) for kind in facts["expect"]],
            inputs=[int(i) for i in facts["inputs"]],
            draws=[bool(used) for used in facts["draws"]],
            sizes=[int(size) for size in facts["sizes"]],
            results=[self._result(r) for r in facts["results"]],
            nest=decoded(facts["result"]),
            states=states,
            written=frozenset([b for _, b in states]),
            executable=None if work is None else work.executable(self.device),
            large=bool(facts["large"]),
            assigned=[int(i) for i in facts["assigned"]],
            fixed=frozenset(self.fixed.values()),
            writes=bool(facts["writes"]),
            checks=[(Unsaved([]), [])] if facts["checks"] else (),
            assembly=work,
            partial=any(kernel.partial for kernel in kernels),
        )
        return captured, decoded(facts["arguments"]), self.named

    def _expr(self, kind: Any) -> TensorExpr:
        name, shape = kind
        return leaf_expr(tuple([int(n) for n in shape]), by_name(name), self.device.name)

    def _result(self, result: list[Any]) -> Any:
        match result:
            case ["new", int(at), name, shape]:
                return self._expr([name, shape]), at
            case ["argument", int(at)]:
                return at
            case ["state", int(at)]:
                return self.states[at][0]
        raise ValueError(f"{result!r} is no result")

    def _bytes(self, name: str) -> bytes:
        entry = self.file.entries[name]
        return self.file.raw(entry.begin, entry.end)

    def _memory(self, number: int, facts: dict[str, Any]) -> None:
        """Take the memory of a tensor in `state`, or make it from the file."""
        name = facts["name"]
        t: Tensor | None
        if name is not None and self.state is not None:
            t = self._given(name, facts["kind"])
            buffer = t.leaves[0].buffer
        else:
            buffer = self.device.write(self._bytes(f"memory.{number}"))
            t = None
            if facts["kind"] is not None:
                t = Tensor.of_part((self._expr(facts["kind"]), (Leaf(buffer),)))
        for key in facts["keys"]:
            self.fixed[int(key)] = buffer
        if name is not None and t is not None:
            self.named[name] = t
        if facts["state"] is not None:
            if t is None:
                raise ValueError(f"memory {number} is assigned to, and has no dtype and shape")
            self.states[int(facts["state"])] = t, buffer

    def _given(self, name: str, kind: Any) -> Tensor:
        """Return a tensor of `state` with memory of its own. Raises `UsageError` if it does not fit."""
        assert self.state is not None  # checked by the caller
        t, wanted = attached(self.state[name]), self._expr(kind)
        if (t.expr.shape, t.expr.dtype, t.expr.device) != (wanted.shape, wanted.dtype, wanted.device):
            raise UsageError(
                f"{self.file.path}: state {name!r} is {described(t)} on {t.expr.device}, the function was "
                f"captured with {wanted.dtype.name}{list(wanted.shape)} on {wanted.device}"
            )
        own(t)
        if not owns(t):
            raise UsageError(
                f"{self.file.path}: state {name!r} is a view of another tensor, whose memory the function "
                "cannot use\nhint: clone() it"
            )
        return t

    def _kernels(self) -> list[KernelLaunch]:
        """Return the launches, with loaded programs."""
        wanted = sorted({launch[0] for launch in self.facts["launches"]} - {None})
        made = dict(zip(wanted, self._compiled(wanted), strict=True))
        kernels = []
        partial = {int(i) for i in self.facts.get("partial", ())}
        for i, (number, memory, sizes, stores) in enumerate(self.facts["launches"]):
            kernel = None if number is None else made[number]
            kernels.append(
                KernelLaunch(
                    None if kernel is None else self.device.program(kernel.image),
                    (1, 1, 1) if kernel is None else kernel.groups,
                    (1, 1, 1) if kernel is None else kernel.threads,
                    tuple([int(key) for key in memory]),
                    tuple([int(size) for size in sizes]),
                    tuple([int(at) for at in stores]),
                    None if number is None else (self._bytes(f"ast.{number}").decode(), 0),
                    i in partial,
                )
            )
        return kernels

    def _compiled(self, numbers: list[int]) -> list[CompiledKernel]:
        """Return the kernels: those of the file if this compiler made them, else compiled from their ASTs."""
        if self.facts["compiler"] == compiler_digest():
            try:
                return [from_bytes(self._bytes(f"kernel.{n}"), arch=self.device.arch) for n in numbers]
            except MalformedError as error:
                raise UsageError(f"{self.file.path}: {error}") from None
        asts = [parse_kernel(self._bytes(f"ast.{n}").decode()) for n in numbers]
        for ast in asts:
            verify_kernel(ast)
        return compile_many(asts, self.device.arch)
