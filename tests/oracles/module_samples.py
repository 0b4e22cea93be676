"""`python -m tests.oracles.module_samples`: PyTorch's module database, run here and in PyTorch.

`torch.testing._internal.common_modules.module_db` lists the layers of `torch.nn` with samples: arguments of
the constructor and of the call, for each dtype, in training and in evaluation. A sample is compared whole:
names of parameters and buffers, dtypes, requires_grad and values of results, gradients of parameters and
inputs, and buffers after the call. Layers that draw numbers are compared but for values.

The program prints what differs or is refused, each once for a layer, and exits with 1 if a value, a name or a
flag differs. It needs PyTorch and `expecttest`. Not here: functions (`tests.oracles.opdb`).
"""

from __future__ import annotations

import importlib
import sys
import warnings
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from hcq.errors import UsageError
from tools.arguments import command, pytorch, reported

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

BOUNDS: Final = {"float64": 1e-9, "float32": 3e-5, "float16": 4e-3, "bfloat16": 3e-2}
"""dtype -> greatest difference of a result, absolute and relative; of gradients ten times as much."""
ABSENT: Final = frozenset({"FractionalMaxPool2d", "FractionalMaxPool3d", "LinearCrossEntropyLoss"})
"""Layers that do not exist here."""
DRAWN: Final = ("Dropout", "RReLU")


class AloneError(Exception):
    """A value of PyTorch has no counterpart here: complex numbers, layers as arguments."""


class Both:
    """Values of PyTorch as values of this project."""

    def __init__(self, torch: Any, ours: Any) -> None:
        self.torch, self.ours = torch, ours

    def dtype(self, of: Any) -> Any:
        """Return the dtype with the name of PyTorch's."""
        return getattr(self.ours, str(of).removeprefix("torch."))

    def value(self, v: Any) -> Any:
        """Return a value, and those inside of lists. Raises `AloneError` for one without a counterpart."""
        torch = self.torch
        if isinstance(v, torch.Tensor):
            plain = v.detach().double() if v.dtype.is_floating_point else v.detach()
            made = self.ours.tensor(plain.contiguous().numpy()).to(self.dtype(v.dtype))
            return made.requires_grad_() if v.requires_grad else made
        if isinstance(v, (tuple, list)):
            return type(v)([self.value(x) for x in v])
        if isinstance(v, torch.nn.Module) or getattr(v, "is_complex", bool)():
            raise AloneError(type(v).__name__)
        if isinstance(v, torch.dtype):
            return self.dtype(v)
        if callable(v):
            for place in (self.ours.nn.functional, self.ours):
                if hasattr(place, getattr(v, "__name__", "?")):
                    return getattr(place, v.__name__)
        return str(v) if isinstance(v, torch.device) else v


def flat(v: Any) -> list[Any]:
    """Return the values inside of lists, or a value."""
    return [y for x in v for y in flat(x)] if isinstance(v, (tuple, list)) else [v]


def _plain(t: Any) -> Any:
    return None if t is None else np.asarray(t.detach().double().numpy())


def _apart(a: Any, b: Any, bound: float) -> str:
    """Return how two arrays differ; "" if they do not."""
    if a is None or b is None:
        return "" if a is b else "one is None"
    if a.shape != b.shape:
        return f"shapes {b.shape} and {a.shape}"
    wrong = ~np.isclose(a, b, rtol=bound, atol=bound, equal_nan=True)
    return f"{wrong.sum()} of {wrong.size}: {b[wrong][:2]} and {a[wrong][:2]}" if wrong.any() else ""


def samples(torch: Any, info: Any) -> Iterator[tuple[str, bool, Any]]:
    """Yield (dtype, training, sample) of a layer."""
    for name in BOUNDS:
        dtype = getattr(torch, name)
        for training in (True, False) if info.train_and_eval_differ else (True,):
            torch.manual_seed(1)
            if dtype in info.dtypes:
                given = info.module_inputs_func(
                    info, device="cpu", dtype=dtype, requires_grad=True, training=training
                )
                yield from ((name, training, s) for s in given if s.forward_input is not None)


def compare(both: Both, info: Any, dtype: str, training: bool, sample: Any) -> Iterator[tuple[str, str]]:  # noqa: FBT001 - of a sample
    """Yield (kind, text) of each difference; kind "refused" where only PyTorch takes the sample.

    Raises `AloneError` for a sample that has no counterpart.
    """
    torch, name, bound = both.torch, info.module_cls.__name__, BOUNDS[dtype]
    made, called = sample.constructor_input, sample.forward_input
    theirs = info.module_cls(*made.args, **made.kwargs).to(getattr(torch, dtype)).train(training)
    inputs = flat([*called.args, *called.kwargs.values()])
    names = {k: both.value(v) for k, v in called.kwargs.items()}
    args = [both.value(v) for v in called.args]
    settings = [both.value(v) for v in made.args], {k: both.value(v) for k, v in made.kwargs.items()}
    try:
        layer = getattr(both.ours.nn, name)(*settings[0], **settings[1])
        layer = layer.to(both.dtype(dtype)).train(training)
    except Exception as e:  # noqa: BLE001 - a refusal is a row
        yield "refused", f"constructor: {e}"
        return
    for what in ("named_parameters", "named_buffers"):
        names_of = [[(n, t.requires_grad) for n, t in getattr(m, what)()] for m in (layer, theirs)]
        if names_of[0] != names_of[1]:
            yield what, f"{names_of[0]} and {names_of[1]}"
    layer.load_state_dict({n: both.value(t) for n, t in theirs.state_dict().items()})
    want = flat(theirs(*called.args, **called.kwargs))
    try:
        got = flat(layer(*args, **names))
    except Exception as e:  # noqa: BLE001 - as above
        yield "refused", f"call: {e}"
        return
    pairs = [(a, b) for a, b in zip(want, got, strict=True) if a is not None or b is not None]
    for a, b in pairs:
        flags = [(str(t.dtype).rpartition(".")[2], t.requires_grad) for t in (b, a)]
        if flags[0] != flags[1]:
            yield "result", f"{flags[0]} and {flags[1]}"
        text = "" if training and any(n in name for n in DRAWN) else _apart(_plain(a), _plain(b), bound)
        if text:
            yield "value", text
            return
    heads = [(a, b) for a, b in pairs if a.requires_grad and a.is_floating_point()]
    if heads and not any(n in name for n in DRAWN):
        rng = np.random.default_rng(0)
        slopes = [rng.standard_normal(tuple(a.shape)) for a, _ in heads]
        for i, maker in enumerate((torch, both.ours)):
            results = [pair[i] for pair in heads]
            given = [maker.tensor(g).to(t.dtype) for g, t in zip(slopes, results, strict=True)]
            maker.autograd.backward(results, given)
        found = [(n, t, p) for (n, t), p in zip(theirs.named_parameters(), layer.parameters(), strict=False)]
        mine = flat([*args, *names.values()])
        found += [
            (f"input {i}", a, b)
            for i, (a, b) in enumerate(zip(inputs, mine, strict=True))
            if isinstance(a, torch.Tensor) and a.requires_grad and a.is_leaf
        ]
        for n, a, b in found:
            text = _apart(_plain(a.grad), _plain(b.grad), 10 * bound)
            if text:
                yield "gradient", f"{n}: {text}"
    for (n, a), b in zip(theirs.named_buffers(), layer.buffers(), strict=False):
        text = _apart(_plain(a), _plain(b), bound)
        if text:
            yield "buffer", f"{n}: {text}"


def main(argv: Sequence[str] | None = None) -> int:
    """Compare all samples, or those of layers whose names are given; return 1 if one differs."""
    parser = command("tests.oracles.module_samples", __doc__)
    parser.add_argument("layers", nargs="*", help="names of layers; by default all")
    args = parser.parse_args(argv)
    torch = pytorch()
    warnings.simplefilter("ignore")
    import frontend  # noqa: PLC0415 - needed here alone

    database = importlib.import_module("torch.testing._internal.common_modules").module_db
    every = {m.module_cls.__name__: m for m in database}
    both, counts, seen = Both(torch, frontend), Counter[str](), set()
    unknown = [name for name in args.layers if name not in every]
    if unknown:
        raise UsageError(f"wanted layers of PyTorch's module database, saw {', '.join(unknown)}")
    for name in args.layers or [n for n in every if not n.startswith("Lazy") and n not in ABSENT]:
        for dtype, training, sample in samples(torch, every[name]):
            try:
                found = list(compare(both, every[name], dtype, training, sample))
            except AloneError:
                counts["without a counterpart"] += 1
                continue
            except Exception as e:
                raise RuntimeError(f"{name}, {dtype}: {sample}") from e
            kinds = {kind for kind, _ in found} or {"same"}
            counts.update(kinds)
            for kind, text in found:
                if (name, kind) not in seen:
                    print(f"{name} {dtype} {'training' if training else 'evaluation'}: {kind}: {text}"[:300])
                seen.add((name, kind))
    print(", ".join(f"{n} {kind}" for kind, n in sorted(counts.items())))
    return int(bool(counts.keys() - {"same", "refused", "without a counterpart"}))


if __name__ == "__main__":
    sys.exit(reported(main))
