"""The calls of PyTorch's operator database, and PyTorch's answers to them. Needs PyTorch.

Next: `call`. Not here: what this project gives (`ours`).
"""

from __future__ import annotations

import importlib
import random
import warnings
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tests.oracles.opdb.call import Answer, Call, Dtype, Given, Result, mapped
from tests.oracles.opdb.decisions import INVARIANT, is_random
from tests.oracles.opdb.forms import flat, weights_of

if TYPE_CHECKING:
    from collections.abc import Iterator

KINDS: Final = ("float32", "int64", "bool", "bfloat16", "int8", "uint8")
FLOATS: Final = {"float64", "float32", "float16", "bfloat16"}
SIMPLE: Final = (int, float, bool, str, type(None), type(...))


class LeftOutError(Exception):
    """An argument has no counterpart here: complex numbers, layouts, generators, results given by `out`."""


def entries() -> dict[str, Any]:
    """Return the operator database by entry, without PyTorch's private functions."""
    warnings.simplefilter("ignore")
    invocations = importlib.import_module("torch.testing._internal.common_methods_invocations")
    return {
        op.name + (f":{op.variant_test_name}" if op.variant_test_name else ""): op
        for op in invocations.op_db
        if not op.name.startswith(("_", "torch.")) or op.name.startswith("__")
    }


def calls(torch: Any, entry: str, op: Any, dtype: str, most: int, *, rounded: bool) -> Iterator[Call | str]:
    """Yield at most `most` calls of an entry, spread over all; texts are those left out.

    With `rounded` floats are multiples of 1/16, which take less room.
    """
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002 - the database draws from it
    kind = getattr(torch, dtype)
    if kind not in op.supported_dtypes("cpu") and dtype not in {"int64", "bool", "bfloat16"}:
        return
    try:
        samples = list(op.sample_inputs("cpu", kind, requires_grad=dtype == "float32"))
    except Exception:  # noqa: BLE001 - the database has no samples of this dtype
        return
    step = max(1.0, len(samples) / most)
    for i in range(min(most, len(samples))):
        yield _call(torch, entry, dtype, samples[int(i * step)], rounded=rounded)


def wrong_calls(torch: Any, entry: str, op: Any) -> Iterator[Call | str]:
    """Yield the calls of an entry that PyTorch says it refuses."""
    torch.manual_seed(0)
    try:
        samples = list(op.error_inputs("cpu"))
    except Exception:  # noqa: BLE001 - the database has none
        return
    for s in samples:
        found = _call(torch, entry, "error", s.sample_input, rounded=False)
        yield (
            Call(found.entry, found.dtype, found.args, found.names, error=True)
            if isinstance(found, Call)
            else found
        )


def _call(torch: Any, entry: str, dtype: str, sample: Any, *, rounded: bool) -> Call | str:
    def change(v: Any) -> Any:
        if isinstance(v, torch.Tensor):
            return _given(torch, v, rounded=rounded)
        if isinstance(v, torch.dtype):
            if v.is_complex:
                raise LeftOutError("complex dtype")
            return Dtype(str(v).removeprefix("torch."))
        if isinstance(v, torch.device):
            return str(v)
        if isinstance(v, np.generic):
            return v.item()
        if isinstance(v, SIMPLE) and not isinstance(v, complex):
            return v
        raise LeftOutError(type(v).__name__)

    def plain(v: Any) -> Any:
        if isinstance(v, (list, tuple, torch.Size)):
            return [plain(x) for x in v] if isinstance(v, list) else tuple([plain(x) for x in v])
        return v

    try:
        if "out" in sample.kwargs or sample.kwargs.get("memory_format") or sample.kwargs.get("generator"):
            return f"{entry}: out, memory_format or generator"
        args = mapped(plain((sample.input, *sample.args)), change)
        return Call(entry, dtype, args, {k: mapped(plain(v), change) for k, v in sample.kwargs.items()})
    except LeftOutError as error:
        return f"{entry}: {error}"


def _given(torch: Any, t: Any, *, rounded: bool) -> Given:
    name = str(t.dtype).removeprefix("torch.")
    if t.layout != torch.strided or t.is_complex() or t.is_quantized or t.device.type != "cpu" or t.ndim > 32:
        raise LeftOutError(f"{name}, {t.layout}, {t.device}, {t.ndim} axes")
    if name.startswith(("float8", "bits", "quint", "qint")):
        raise LeftOutError(name)
    if t._is_zerotensor():  # noqa: SLF001 - it has no public name
        raise LeftOutError("a tensor of zeros without memory")
    wide = t.detach().resolve_conj().resolve_neg()
    array = (wide.float() if name == "bfloat16" else wide).numpy().copy()
    if rounded and name in FLOATS:
        rough = np.where(np.abs(array) < 1e4, np.round(array * 16) / 16, array).astype(array.dtype)
        array = np.where((rough == 0) & (array != 0), np.copysign(1 / 16, array), rough).astype(array.dtype)
    return Given(array, name, grad=bool(t.requires_grad))


def answer(torch: Any, op: Any, call: Call) -> Answer:
    """Return PyTorch's answer to a call."""
    try:
        form, outs, grads = _evaluate(torch, op, call, wide=False)
    except Exception as error:  # noqa: BLE001 - whatever PyTorch raises is the answer
        return Answer(error=f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")
    truth: tuple[list[Any], dict[int, Any]] = ([], {})
    if not is_random(call):
        try:
            truth = _evaluate(torch, op, call, wide=True)[1:]
        except Exception:  # noqa: BLE001 - no answer in float64: PyTorch's own is compared
            truth = ([], {})
    wide = truth[0] if len(truth[0]) == len(outs) else [None] * len(outs)
    results = tuple([_result(o, w) for o, w in zip(outs, wide, strict=True)])
    gradients = {n: None if g is None else _result(g, truth[1].get(n)) for n, g in grads.items()}
    return Answer(form, results, gradients)


def _evaluate(torch: Any, op: Any, call: Call, *, wide: bool) -> tuple[str, list[Any], dict[int, Any]]:
    made: list[Any] = []

    def change(v: Any) -> Any:
        if isinstance(v, Dtype):
            name = "float64" if wide and v.name in FLOATS else v.name
            return getattr(torch, name)
        if isinstance(v, Given):
            t = torch.tensor(v.array, dtype=getattr(torch, v.dtype))
            t = t.double() if wide and v.dtype in FLOATS else t
            t.requires_grad_(v.grad)
            made.append(t)
            return t
        return v

    args = mapped(call.args, change)
    names = {k: mapped(v, change) for k, v in call.names.items()}
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = op.op(*args, **names)
    form, outs = flat(result, torch.Tensor)
    outs = INVARIANT[call.name](outs) if call.name in INVARIANT else outs
    flowing = [o for o in outs if isinstance(o, torch.Tensor) and o.requires_grad]
    grads: dict[int, Any] = {}
    if flowing and not is_random(call):
        weights = [torch.tensor(weights_of(tuple(o.shape))).to(o.dtype) for o in flowing]
        total = sum((o * w).sum() for o, w in zip(flowing, weights, strict=True))
        at = [n for n, t in enumerate(made) if t.requires_grad]
        try:
            slopes = torch.autograd.grad(total, [made[n] for n in at], allow_unused=True) if at else ()
        except RuntimeError:  # PyTorch has no derivative
            return form, outs, {}
        grads = dict(zip(at, slopes, strict=True))
    return form, outs, grads


def _result(t: Any, wide: Any) -> Result:
    name = str(t.dtype).removeprefix("torch.")
    if t.is_complex():
        return Result(tuple(t.shape), name, None)
    if t._is_zerotensor():  # noqa: SLF001 - it has no public name
        t = t.new_zeros(t.shape)
    wide = wide.new_zeros(wide.shape) if wide is not None and wide._is_zerotensor() else wide  # noqa: SLF001
    values = (t.detach().double() if t.is_floating_point() else t.detach()).numpy()
    truth, error = None, 0.0
    if wide is not None and name in FLOATS and wide.shape == t.shape and wide.is_floating_point():
        truth = wide.detach().double().numpy()
        with np.errstate(invalid="ignore"):
            off = np.abs(values - truth)
        error = float(off[np.isfinite(off)].max(initial=0))
    return Result(tuple(t.shape), name, values, truth, error)
