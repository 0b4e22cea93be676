"""The functions of the module `frontend`: PyTorch's names, so that `import frontend as torch` reads on.

Every method of the table `frontend.methods` is a function, whose first argument is the tensor. Makers
(`zeros`, `arange`, ...) are those of `Tensor`. The rest is here, or in the module that `HOMES` names. Values
that do not fit raise `UsageError`, arguments of other classes `UsageTypeError`.

Not here: the methods (`frontend.ops`), layers and losses (`frontend.nn`). Next: `frontend.nn.functional`.
"""

from __future__ import annotations

import inspect
import math
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from importlib import import_module
from typing import Any, Final

from compiler.dtype import DType, by_name, dtypes, promote
from frontend.arguments.aliases import MemoryLayout, accepts_aliases, named_at
from frontend.arguments.checks import FLOAT, Size, element_type
from frontend.arguments.conversion import flag, shown
from frontend.assignment import in_place, refer
from frontend.device import Device, DeviceName, device_name
from frontend.evaluation import modes
from frontend.evaluation.base import THREAD
from frontend.evaluation.expr import TABLE
from frontend.evaluation.history import has_history
from frontend.evaluation.plan import refuse
from frontend.methods import METHODS
from frontend.ops.casts import TYPES
from frontend.ops.elementwise import chosen
from frontend.ops.random import GENERATOR, DrawState, seed_of
from frontend.tensor import Tensor
from hcq.errors import UsageError, UsageTypeError

_FUNCTIONAL: Final = frozenset({
    "adaptive_max_pool1d", "channel_shuffle", "adaptive_avg_pool1d", "avg_pool1d", "batch_norm", "conv1d",
    "conv3d", "conv_transpose1d", "conv_transpose3d", "cosine_embedding_loss", "cosine_similarity",
    "embedding", "group_norm", "layer_norm", "margin_ranking_loss", "max_pool1d", "max_pool3d",
    "pairwise_distance", "pixel_shuffle", "pixel_unshuffle", "poisson_nll_loss", "rms_norm",
    "triplet_margin_loss",
})  # fmt: skip
"""Functions of `nn.functional` that are no methods, and functions of PyTorch's module, too."""
_AUTOCAST: Final = (
    "GradScaler", "autocast", "get_autocast_cpu_dtype", "get_autocast_dtype", "get_autocast_gpu_dtype",
    "is_autocast_cpu_enabled", "is_autocast_enabled",
)  # fmt: skip
HOMES: Final = {
    "Function": "frontend.autograd.function",
    "TinyJit": "frontend.capture.jit",
    "compile": "frontend.capture.compiled",
    "Variable": "frontend.variable",
    "checkpoint": "frontend.autograd.checkpoint",
    "checkpoint_sequential": "frontend.autograd.checkpoint",
    "set_printoptions": "frontend.evaluation.printing",
    **dict.fromkeys(
        ("enable_grad", "inference_mode", "is_grad_enabled", "no_grad", "set_grad_enabled"),
        "frontend.autograd.grad_modes",
    ),
    **dict.fromkeys(("load", "save"), "frontend.nn.state.saving"),
    **dict.fromkeys(("finfo", "iinfo"), "frontend.array_api.data_types"),
    **dict.fromkeys(_AUTOCAST, "frontend.amp"),
    **dict.fromkeys(_FUNCTIONAL, "frontend.nn.functional"),
    **dict.fromkeys(("binomial", "poisson"), "frontend.torch.families"),
    "matrix_exp": "frontend.torch.linalg",
    "vmap": "frontend.func",
}
"""Names of the module -> the modules that define them."""
CONSTANTS: Final = {
    **{n: MemoryLayout(n) for n in ("strided", "preserve_format", "contiguous_format", "channels_last")},
    "channels_last_3d": MemoryLayout("channels_last_3d"), "layout": MemoryLayout,
    "memory_format": MemoryLayout, "Size": Size, "dtype": DType, "e": math.e, "inf": math.inf,
    "nan": math.nan, "pi": math.pi, "newaxis": None, "__version__": "2.13.0+hcq",
}  # fmt: skip
"""Numbers and types that are names of the module."""
DTYPE_NAMES: Final = frozenset(
    {t.name for t in dtypes.all()}
    | {"half", "float", "double", "char", "short", "int", "long", "byte", "bool"}
)
"""Dtypes that are names of the module."""
_DRAWN: Final = frozenset({
    "bernoulli", "multinomial", "normal", "rand", "randint", "randn", "randperm",
})  # fmt: skip
_MADE: Final = frozenset({"arange", "empty", "eye", "full", "linspace", "logspace", "ones", "zeros"})
_REFLECTED: Final = {
    "pow": "__rpow__", "remainder": "__rmod__", "bitwise_and": "__rand__", "bitwise_or": "__ror__",
    "bitwise_xor": "__rxor__", "add": "__radd__", "sub": "__rsub__", "mul": "__rmul__", "div": "__rtruediv__",
    "true_divide": "__rtruediv__", "floor_divide": "__rfloordiv__",
}  # fmt: skip
"""Functions that take a number before a tensor -> the operator that computes them."""


def find(name: str) -> Any:
    """Return the member of the module of one of `NAMES` that is not among `HOMES`.

    "long", "float" and the like are dtypes, although tensors have methods of these names.
    """
    if name in TORCH_FUNCTIONS:
        found = import_module("frontend.torch.functions").FUNCTIONS[name]
        return named_at("frontend", name, accepts_aliases(found))
    if name in CONSTANTS:
        return CONSTANTS[name]
    if name in _DRAWN or name in _MADE:
        return _making(name, globals()[name] if name in OWN else getattr(Tensor, name))
    if name in OWN:
        own = globals()[name]
        return own if isinstance(own, type) else named_at("frontend", name, accepts_aliases(own))
    if name in DTYPE_NAMES:
        return by_name(name)
    member = getattr(Tensor, name)
    return member if inspect.ismethod(member) or name in _STATIC else _function(name, member)


def _making(name: str, make: Callable[..., Any]) -> Callable[..., Any]:
    """Return a maker with PyTorch's arguments `out` and, if it draws random numbers, `generator`."""
    drawn = name in _DRAWN

    @wraps(make)
    def call(*args: Any, out: Tensor | None = None, **names: Any) -> Any:
        if out is not None:
            names = names if name in {"bernoulli", "multinomial"} else {"dtype": out.dtype, **names}
            found = call(*args, **names)
            return _into(out, found.cast(out.dtype) if name == "bernoulli" else found, name)
        generator = names.pop("generator", None) if drawn else None
        if generator is None:
            return make(*args, **names)
        with generator.drawing():
            return make(*args, **names)

    return named_at("frontend", name, accepts_aliases(call))


def _function(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method as a function that takes its tensor under PyTorch's names, too."""
    reflected = _REFLECTED.get(name)

    @wraps(method)
    def call(*args: Any, **names: Any) -> Any:
        if "out" in names:
            return _into(names.pop("out"), call(*args, **names), name)
        if not args:
            args = tuple(
                [names.pop(first) for first in ("input", "tensors", "condition") if first in names][:1]
            )
        first: Any = args[0] if args else None
        if not isinstance(first, Tensor):
            if reflected and len(args) == 2 and isinstance(args[1], Tensor):
                return getattr(args[1], reflected)(first)
            if name in {"bucketize", "xlogy"} and args[1:] and isinstance(args[1], Tensor):
                return method(Tensor.full((), first, device=args[1].device), *args[1:], **names)
            if not (isinstance(first, (list, tuple)) and all(isinstance(t, Tensor) for t in first)):
                raise UsageTypeError(
                    f"{name}: wanted a tensor first, saw {shown(first)}\nhint: make one by Tensor(...)"
                )
        return method(*args, **names)

    return named_at("frontend", name, call)


def _into(out: Any, found: Any, name: str) -> Any:
    """Write results into the tensors of PyTorch's argument `out`, which take their shape; return these."""
    if isinstance(out, (tuple, list)):
        return type(found)(*[_into(*pair, name) for pair in zip(out, found, strict=True)])
    if not isinstance(out, Tensor) or (found.dtype.is_float and not out.dtype.is_float):
        raise UsageTypeError(f"{name}, out: wanted a tensor that holds {found.dtype}, saw {shown(out)}")
    if not THREAD.cut and (has_history(found) or out.requires_grad):
        raise UsageError(f"{name}: out= has no gradients; call it within no_grad(), or without out=")
    if out.shape == found.shape:
        return out.copy_(found)
    refer(out, found.to(out.device).cast(out.dtype).clone())
    return out


def private(name: str) -> Callable[..., Any]:
    """Return a function that packages use although PyTorch's name has an underscore.

    `_assert(condition, text)` raises `AssertionError`. `_foreach_NAME(tensors, ...)` calls a method of each
    tensor; each list among the arguments has one for each. Raises `AttributeError` for a method that is none.
    """
    if name == "_assert":
        return _assert
    plain, several = name.removeprefix("_foreach_"), (list, tuple)
    if plain == plain.rstrip("_") or hasattr(Tensor, plain):
        method = getattr(Tensor, plain)
    else:
        method = in_place(getattr(Tensor, plain[:-1]))

    def call(tensors: Sequence[Tensor], *others: Any, **names: Any) -> Any:
        names = {{"scalars": "value", "ord": "p"}.get(n, n): v for n, v in names.items()}
        if any(len(v) != len(tensors) for v in (*others, *names.values()) if isinstance(v, several)):
            raise UsageError(f"{name}: wanted lists of {len(tensors)} arguments, one for each tensor")
        found = [
            method(
                t,
                *[v[i] if isinstance(v, several) else v for v in others],
                **{n: v[i] if isinstance(v, several) else v for n, v in names.items()},
            )
            for i, t in enumerate(tensors)
        ]
        return None if name.endswith("_") else found

    return call


def _assert(condition: Any, message: str = "") -> None:
    if not condition:
        raise AssertionError(message)


def where(condition: Tensor, input: Any = None, other: Any = None, *, out: Any = None) -> Any:
    """Return elements of `input` where a condition holds, else of `other`; alone, the indices where it holds.

    The indices are a tuple of a tensor for each axis. With `out`, elements are written into that tensor.
    """
    if input is None and other is None:
        return condition.nonzero(as_tuple=True)
    found = chosen(condition.bool() if condition.dtype is dtypes.uint8 else condition, input, other)
    return found if out is None else _into(out, found, "where")


def is_tensor(x: object) -> bool:
    """Return whether an object is a tensor."""
    return isinstance(x, Tensor)


def from_numpy(array: Any) -> Tensor:
    """Return a tensor with the elements of a NumPy array. A copy: later writes to it are not seen."""
    if not hasattr(array, "__array_interface__"):
        raise UsageTypeError(f"from_numpy: wanted an array of NumPy, saw {shown(array)}; try Tensor(...)")
    return Tensor(array)


def as_tensor(data: Any, dtype: Any = None, device: str | None = None) -> Tensor:
    """Return `data` itself if it is a tensor of the dtype on the device, else a tensor made of it."""
    wanted = element_type(dtype)
    if isinstance(data, Tensor) and wanted in {None, data.dtype} and device in {None, data.device}:
        return data
    return import_module("frontend").tensor(data, dtype=wanted, device=device)  # type: ignore[no-any-return]


def asarray(
    obj: Any,
    *,
    dtype: Any = None,
    device: str | None = None,
    copy: bool | None = None,
    requires_grad: bool | None = None,
) -> Tensor:
    """Return `as_tensor` of an object, with `copy` always a new tensor.

    With `requires_grad` False it is detached, with True it gets requires_grad.
    """
    found = as_tensor(obj, dtype, device)
    found = found.clone() if copy and found is obj else found
    if requires_grad is None or flag(requires_grad, "asarray, requires_grad") is found.requires_grad:
        return found
    return found.requires_grad_() if requires_grad else found.detach()


def randint(
    low: int, high: Any = None, size: Any = None, *, dtype: Any = dtypes.int64, device: str | None = None
) -> Tensor:
    """Return random integers from `low` (with two arguments 0) below `high`, in a shape `size`."""
    if size is None:
        low, high, size = 0, low, high
    elif high is None:
        low, high = 0, low
    if high is None or size is None:
        raise UsageTypeError("randint: wanted randint(high, size) or randint(low, high, size)")
    return Tensor.randint(*size, low=low, high=high, dtype=dtype, device=device)


def normal(
    mean: Any = 0.0, std: Any = 1.0, size: Any = None, *, dtype: Any = None, device: Any = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Return normally distributed numbers: of a shape `size`, or one for each element of `mean` and `std`."""
    if size is not None:
        made = Tensor.normal(*size, mean=mean, std=std, dtype=dtype, device=device)
        return made.requires_grad_(requires_grad)
    if not isinstance(mean, Tensor) and not isinstance(std, Tensor):
        raise UsageTypeError("normal: wanted a tensor as mean or std, or a size, saw numbers alone")
    if device is not None or requires_grad:
        raise UsageTypeError("normal: device= and requires_grad= go with a size; leave them out here")
    total = mean + std * 0
    found: Tensor = mean + std * Tensor.randn(*total.shape, dtype=total.dtype, device=total.device)
    return found


def result_type(a: Any, b: Any) -> DType:
    """Return the dtype of an operation on two tensors, or on a tensor and a number."""
    first, second = [v.reshape(-1)[:1] if isinstance(v, Tensor) and v.ndim else v for v in (a, b)]
    any_tensor = isinstance(a, Tensor) or isinstance(b, Tensor)
    return (first + second if any_tensor else Tensor.full((), a) + Tensor.full((), b)).dtype


def promote_types(a: Any, b: Any) -> DType:
    """Return the dtype that values of two dtypes promote to."""
    found = [element_type(t) for t in (a, b)]
    if found[0] is None or found[1] is None:
        raise UsageTypeError(f"promote_types: wanted two dtypes, saw {shown(a)} and {shown(b)}")
    return promote(found[0], found[1])


def broadcast_shapes(*shapes: Any) -> tuple[int, ...]:
    """Return the shape that shapes broadcast to. Raises `UsageError` where they do not."""
    every = [(s,) if isinstance(s, int) else tuple(s) for s in shapes]
    out: list[int] = []
    for k in range(1, 1 + max(map(len, every), default=0)):
        sizes = {s[-k] for s in every if len(s) >= k} - {1}
        if len(sizes) > 1:
            raise UsageError(f"shapes {', '.join(map(str, every))} do not broadcast")
        out.insert(0, sizes.pop() if sizes else 1)
    return tuple(out)


def _listed(tensors: Sequence[Any]) -> list[Tensor]:
    return [t if isinstance(t, Tensor) else Tensor(t) for t in tensors]


def atleast_1d(*tensors: Any) -> Any:
    """Return tensors with one axis at least; one tensor for one, a tuple for several."""
    return _each(tensors, lambda t: t.reshape(1) if t.ndim == 0 else t)


def atleast_2d(*tensors: Any) -> Any:
    """Return tensors with two axes at least: a vector becomes a row."""
    return _each(tensors, lambda t: t.reshape(1, -1) if t.ndim < 2 else t)


def atleast_3d(*tensors: Any) -> Any:
    """Return tensors with three axes at least: a vector is along the second, a matrix along both first."""
    return _each(
        tensors, lambda t: t.reshape(1, -1, 1) if t.ndim < 2 else t.unsqueeze(-1) if t.ndim == 2 else t
    )


def _each(tensors: Sequence[Any], change: Callable[[Tensor], Tensor]) -> Any:
    if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)):
        tensors = tensors[0]
    found = tuple([change(t) for t in _listed(tensors)])
    return found[0] if len(found) == 1 else found


def hstack(tensors: Sequence[Any]) -> Tensor:
    """Join tensors side by side: vectors along their axis, others along the second."""
    every: list[Tensor] = [atleast_1d(t) for t in _listed(tensors)]
    return Tensor.cat(every, axis=0 if every[0].ndim == 1 else 1)


def vstack(tensors: Sequence[Any]) -> Tensor:
    """Join tensors along the first axis; vectors are rows."""
    every: list[Tensor] = [atleast_2d(t) for t in _listed(tensors)]
    return Tensor.cat(every, axis=0)


row_stack = vstack


def dstack(tensors: Sequence[Any]) -> Tensor:
    """Join tensors along the third axis."""
    every: list[Tensor] = [atleast_3d(t) for t in _listed(tensors)]
    return Tensor.cat(every, axis=2)


def column_stack(tensors: Sequence[Any]) -> Tensor:
    """Join tensors along the second axis; vectors are columns."""
    every = [t.reshape(-1, 1) if t.ndim < 2 else t for t in _listed(tensors)]
    return Tensor.cat(every, axis=1)


def logspace(
    start: float, end: float, steps: int, base: float = 10.0, *, dtype: Any = None, device: Any = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Return `steps` numbers from base**start to base**end, whose exponents are evenly spaced.

    For integers both exponents and the results are truncated.
    """
    found = element_type(dtype) or FLOAT[0]
    if not found.is_float:  # truncated, so that 8 must not be 7.99
        each = Tensor.linspace(int(start), int(end), steps, dtype=dtypes.float64).tolist()
        return Tensor([int(base**x) for x in each], dtype=found, device=device).requires_grad_(requires_grad)
    wide = found if found.bits > 16 else dtypes.float32
    made = (Tensor.linspace(start, end, steps, dtype=wide, device=device) * math.log(base)).exp()
    return made.cast(found).requires_grad_(requires_grad)


def tril_indices(
    row: int, col: int, offset: int = 0, *, dtype: Any = dtypes.int64, device: Any = None
) -> Tensor:
    """Return the indices (2, n) of the lower triangle of a matrix, row by row."""
    every = [(i, j) for i in range(row) for j in range(col) if j - i <= offset]
    return Tensor([[p[k] for p in every] for k in (0, 1)], dtype=dtype, device=device)


def triu_indices(
    row: int, col: int, offset: int = 0, *, dtype: Any = dtypes.int64, device: Any = None
) -> Tensor:
    """Return the indices (2, n) of the upper triangle of a matrix, row by row."""
    every = [(i, j) for i in range(row) for j in range(col) if j - i >= offset]
    return Tensor([[p[k] for p in every] for k in (0, 1)], dtype=dtype, device=device)


class Generator(DrawState):
    """A seed that a data loader, `random_split` and the makers of random tensors use; `manual_seed` sets it.

    Draws with a generator are a sequence of their own, that of its seed.
    """

    def __init__(self, device: str = "cpu") -> None:
        self.device = device_name(Device.named(device))

    @contextmanager
    def drawing(self) -> Iterator[None]:
        """Take the draws of a `with` block from here. Raises `UsageError` in a captured function."""
        refuse("a generator inside a captured function would not be replayed")
        before, GENERATOR.place = GENERATOR.place, self.place
        try:
            yield
        finally:
            self.place, GENERATOR.place = GENERATOR.place, before

    def manual_seed(self, seed: int) -> Generator:
        """Set the seed; return self. Raises `UsageError` for one of more than 64 bits."""
        self.place = seed_of(seed), 0
        return self

    def initial_seed(self) -> int:
        """Return the seed."""
        return self.place[0]

    def seed(self) -> int:
        """Set a seed from the system, and return it."""
        return self.manual_seed(_chance()).initial_seed()

    def get_state(self) -> Tensor:
        """Return the seed and the number of draws, as (16,) uint8."""
        return _state(self)

    def set_state(self, new_state: Tensor) -> Generator:
        """Go on from a state; return self. Raises `UsageError` for a tensor that is no state."""
        self.place = _of_state(new_state)
        return self


def _state(of: DrawState) -> Tensor:
    return Tensor([*struct.pack("<QQ", *of.place)], dtype=dtypes.uint8, device="cpu")


def _of_state(state: Any) -> tuple[int, int]:
    if not isinstance(state, Tensor):
        raise UsageTypeError(f"wanted the state of a generator, a tensor, saw {shown(state)}")
    if state.shape != (16,) or state.dtype is not dtypes.uint8:
        seen = f"shape {tuple(state.shape)}, {state.dtype.name}"
        raise UsageError(f"wanted the state of a generator, (16,) uint8 of get_rng_state, saw {seen}")
    seed, drawn = struct.unpack("<QQ", bytes(state.tolist()))
    return seed, drawn


def _chance() -> int:
    import secrets  # noqa: PLC0415 - rarely needed

    return secrets.randbits(31)


class _TypedTensor(type):
    """The class of `LongTensor` and the like: a call makes a tensor; its instances are those of a dtype."""

    dtype: DType

    def __call__(cls, *data: Any) -> Any:
        """Return a tensor with data, or with undefined contents of sizes."""
        if all(isinstance(n, int) for n in data):
            return Tensor.empty(*data, dtype=cls.dtype)
        return Tensor(data[0], dtype=cls.dtype)

    def __instancecheck__(cls, x: object) -> bool:
        return isinstance(x, Tensor) and x.dtype is cls.dtype


for _kind, _name in TYPES.items():
    _text = f"Tensors of {_kind}; a call makes one of data, or of sizes."
    _fields = {"dtype": by_name(_kind), "__doc__": _text, "__module__": __name__}
    globals()[f"{_name}Tensor"] = _TypedTensor(f"{_name}Tensor", (), _fields)


def get_default_dtype() -> DType:
    """Return the dtype of new tensors of floats: float32 at first."""
    return FLOAT[0]


def set_default_dtype(d: Any) -> None:
    """Choose the dtype of new tensors of floats, of quotients of integers, and of new layers.

    Raises `UsageTypeError` for no dtype of floats, `UsageError` in a captured function.
    """
    refuse("set_default_dtype inside a captured function: replays would not see it; call it outside")
    found = element_type(d)
    if found is None or not found.is_float or found.bits < 16:
        raise UsageTypeError(f"set_default_dtype: wanted a dtype of floats, saw {shown(d)}")
    FLOAT[0] = found
    modes.changed()
    TABLE.clear()  # it holds results of functions of integers


def seed() -> int:
    """Seed the random numbers from the system, and return the seed."""
    Tensor.manual_seed(_chance())
    return initial_seed()


def initial_seed() -> int:
    """Return the seed of the random numbers."""
    return GENERATOR.place[0]


def get_rng_state() -> Tensor:
    """Return the state of the random numbers: the seed and the number of draws, as (16,) uint8 on "cpu"."""
    return _state(GENERATOR)


def set_rng_state(new_state: Tensor) -> None:
    """Go on with random numbers from a state.

    Raises `UsageError` for a tensor that is no state, and in a captured function.
    """
    refuse("a state of random numbers inside a captured function would not be replayed; set it outside")
    GENERATOR.place = _of_state(new_state)


def get_default_device() -> DeviceName:
    """Return the name of the device of new tensors."""
    return device_name(Device.DEFAULT)


def set_default_device(device: str) -> None:
    """Choose the device of new tensors. Raises `UsageError` for an unknown one."""
    Device.DEFAULT = device


_OWN: Final = {n for n, v in globals().items() if n[0] != "_" and getattr(v, "__module__", "") == __name__}
OWN: Final = frozenset(_OWN - {"find"})
"""Functions of this module that are names of `frontend`."""
_METHODS: Final = frozenset(
    ["clone", "detach", "is_floating_point", "numel"]
    + [name for row in METHODS for name in (*row.plain, *row.changing) if not name.startswith("_")]
)
_STATIC: Final = frozenset(name for row in METHODS if row.kind == "static" for name in row.plain)
TORCH_FUNCTIONS: Final = frozenset({
    "alpha_dropout", "are_deterministic_algorithms_enabled", "bartlett_window", "bilinear",
    "blackman_window", "block_diag", "can_cast", "cartesian_prod", "cdist", "chain_matmul", "combinations",
    "cumulative_trapezoid", "feature_alpha_dropout", "frombuffer", "get_float32_matmul_precision",
    "get_num_interop_threads", "get_num_threads", "gradient", "hamming_window", "hann_window",
    "instance_norm", "kaiser_window", "pdist", "polygamma", "randint_like", "range", "rrelu", "rsub",
    "scalar_tensor", "set_float32_matmul_precision", "set_num_interop_threads", "set_num_threads",
    "trapezoid", "trapz", "unravel_index", "use_deterministic_algorithms", "vander",
})  # fmt: skip
"""Functions of `frontend.torch.functions` that are names of `frontend`."""
NAMES: Final = frozenset({*HOMES, *TORCH_FUNCTIONS, *CONSTANTS, *OWN, *_METHODS, *DTYPE_NAMES})
"""All names that `find` and `HOMES` know."""
