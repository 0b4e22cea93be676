"""The tensor: an expression and the realized leaves that it is over.

Lazy: nothing runs before `realize`, `numpy`, `item`, ... A tensor is a value. Views, gradients and
captured functions never see another tensor change; only `assign` and what is built on it (in-place
operators, `x[...] = y`, optimisers) give *this* tensor a new value, stored in the same memory. The
methods live in `frontend.ops`, by what they do; this class names them, which is why the file is long.

Dtypes: `a + b` promotes as `compiler.dtype.promote` says; a Python number takes the dtype of the tensor
beside it, unless it is a float and the tensor is not (then float32). Shapes broadcast aligned at the end.
"""

from __future__ import annotations

import contextlib
import math
import threading
import weakref
from typing import TYPE_CHECKING, Any, ClassVar, Self

from compiler.dtype import DType, by_name, dtypes
from compiler.ops import Ops
from frontend import autograd
from frontend.device import LOCK, Device
from frontend.expr import PARAM, STOP, Expr, Leaves, Part, leaf_expr, source_expr
from frontend.lazy import EPOCH, PLAIN, Rebound, apply, method
from frontend.ops import (
    activation,
    arguments,
    creation,
    elementwise,
    functions,
    indexing,
    linalg,
    movement,
    nnops,
    random,
    reduce,
)
from frontend.realize import CAPTURE, PENDING, realize_many, realize_one
from frontend.storage import (
    Leaf,
    bytes_of,
    dtype_of,
    flatten,
    from_numpy,
    moved,
    nested,
    of_bytes,
    pack,
    to_numpy,
    unpack,
)
from hcq.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np

_new = object.__new__


@method
def _stopped(self: Tensor) -> Tensor:
    return apply(STOP, None, self)


class Tensor:
    """An array of numbers on a device: see the module."""

    __slots__ = ("__weakref__", "epoch", "expr", "leaves", "recipe", "state", "used")

    expr: Expr
    leaves: Leaves
    recipe: tuple[Any, ...] | Rebound | None
    """What rebuilds a pending tensor: a function and its arguments."""
    used: bool
    """Whether others were built from it."""
    epoch: int
    state: autograd.Gradient
    training: ClassVar[bool] = False
    """Whether dropout drops and batch norms learn: see `train`."""

    def __init__(
        self,
        data: Any,
        *,
        dtype: DType | str | None = None,
        device: str | None = None,
        requires_grad: bool | None = None,
    ) -> None:
        """Make a tensor of a number, nested lists, a range, bytes (uint8), an array, or another tensor.

        A number is a constant; anything else is copied to the device now.
        """
        wanted = by_name(dtype) if isinstance(dtype, str) else dtype
        if wanted is dtypes.index or wanted is dtypes.void:
            names = ", ".join([t.name for t in dtypes.all()])
            raise UsageError(f"{wanted.name} exists only inside kernels; tensors are of {names}")
        self.recipe = None
        self.used = False
        self.epoch = EPOCH[0]
        made = _made(self.__class__, data, wanted, device)
        self.expr, self.leaves = made.expr, made.leaves
        if wanted is not None and self.expr.dtype is not wanted:
            cast = elementwise.cast(made, wanted)
            self.expr, self.leaves = cast.expr, cast.leaves
        if requires_grad is not None:
            self.requires_grad = requires_grad

    # -- making -----------------------------------------------------------------------------------------
    @classmethod
    def of_part(cls, part: Part) -> Self:
        """Return a tensor of an expression and its leaves."""
        t = _new(cls)
        t.expr, t.leaves = part
        t.recipe = None
        t.used = False
        t.epoch = EPOCH[0]
        return t

    @staticmethod
    def device_name(device: str | None) -> str:
        """Return the one name of a device; of the default one for None."""
        return Device.DEFAULT if device is None else Device.canonical(device)

    def operand(self, value: Any) -> Any:
        """Return what stands for a value beside this tensor: a tensor on its device, or a Python number."""
        if value.__class__ is self.__class__ or isinstance(value, (bool, int, float)):
            return value
        if (
            hasattr(value, "ndim")
            and hasattr(value, "item")
            and value.ndim == 0
            and not hasattr(value, "expr")
        ):
            return value.item()
        if hasattr(value, "scalar"):
            return value.scalar(self)
        if isinstance(value, (list, tuple, range)) or hasattr(value, "__array__"):
            return self.__class__(value, device=self.expr.device)
        raise UsageError(f"wanted a tensor, a number, lists or an array, saw {type(value).__name__}")

    def parameter(self, value: float) -> Tensor:
        """Return a number in a one-element buffer: it may change without another kernel."""
        dtype = arguments.number_dtype(value, self.expr.dtype)
        opened = Device[self.expr.device]
        leaf = Leaf(opened.write_small(pack([value], dtype).ljust(16, b"\0")))
        return self.of_part((leaf_expr((), dtype, opened.name), (leaf,)))

    full = classmethod(creation.full)
    zeros = classmethod(creation.zeros)
    ones = classmethod(creation.ones)
    empty = classmethod(creation.empty)
    arange = classmethod(creation.arange)
    linspace = classmethod(creation.linspace)
    eye = classmethod(creation.eye)
    rand = classmethod(random.rand)
    randn = classmethod(random.randn)
    randint = classmethod(random.randint)
    uniform = classmethod(random.uniform)
    normal = classmethod(random.normal)
    scaled_uniform = classmethod(random.scaled_uniform)
    glorot_uniform = classmethod(random.glorot_uniform)
    kaiming_uniform = classmethod(random.kaiming_uniform)
    kaiming_normal = classmethod(random.kaiming_normal)
    manual_seed = staticmethod(random.manual_seed)
    einsum = staticmethod(linalg.einsum)
    full_like = creation.full_like
    zeros_like = creation.zeros_like
    ones_like = creation.ones_like
    rand_like = random.rand_like
    randn_like = random.randn_like

    # -- what it is -------------------------------------------------------------------------------------
    @property
    def shape(self) -> tuple[int, ...]:
        """The size of each axis."""
        return self.expr.shape

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.expr.dtype

    @property
    def device(self) -> str:
        """The name of the device."""
        return self.expr.device

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.expr.shape)

    @property
    def T(self) -> Tensor:  # noqa: N802 - the field's name
        """The axes in reverse order."""
        return movement.permute(self, *range(len(self.expr.shape) - 1, -1, -1))

    @property
    def is_realized(self) -> bool:
        """Whether the value lies in memory."""
        return self.expr.op is PARAM

    def numel(self) -> int:
        """Return the number of elements."""
        return math.prod(self.expr.shape)

    def nbytes(self) -> int:
        """Return the bytes that the elements take."""
        return math.prod(self.expr.shape) * self.expr.dtype.itemsize

    def size(self, axis: int | None = None) -> Any:
        """Return the shape, or the size of one axis."""
        return (
            self.expr.shape
            if axis is None
            else self.expr.shape[arguments.axis_of(axis, self.expr.shape, "size")]
        )

    def is_floating_point(self) -> bool:
        """Return whether elements are floats."""
        return self.expr.dtype.is_float

    # -- computing --------------------------------------------------------------------------------------
    def realize(self, *others: Tensor) -> Self:
        """Compute the value, and those of others in the same launch; return self.

        The device may still be at work.
        """
        if others:
            realize_many((self, *others))
        else:
            realize_one(self)
        return self

    def data(self) -> bytes:
        """Return the elements as bytes, row-major, once the device has computed them."""
        return bytes(self._elements())

    def _elements(self) -> memoryview:
        if CAPTURE.now is not None:
            raise UsageError(
                "the value of a tensor was asked for inside a captured function: a replay could not do that"
            )
        realize_one(self)
        return bytes_of(self)

    def numpy(self) -> np.ndarray[Any, Any]:
        """Return the value as a NumPy array of its own."""
        return to_numpy(self._elements(), self.expr.shape, self.expr.dtype)

    def tolist(self) -> Any:
        """Return the value as nested lists; a number for shape ()."""
        return nested(unpack(self._elements(), self.expr.dtype), self.expr.shape)

    def item(self) -> Any:
        """Return the only element as a Python number."""
        if math.prod(self.expr.shape) != 1:
            raise UsageError(f"item() wants exactly one element, the shape is {self.expr.shape}")
        return unpack(self._elements(), self.expr.dtype)[0]

    def to(self, device: str | None) -> Tensor:
        """Return the value on another device."""
        name = self.device_name(device)
        return self if name == self.expr.device else moved(self, name)

    def clone(self) -> Tensor:
        """Return the same value in a buffer of its own, once realized."""
        return movement.contiguous(self)

    def assign(self, value: Any) -> Self:
        """Give this tensor a new value of its dtype, and of its shape or broadcasting to it; return self.

        The value is computed at the next realize and stored in the memory that this tensor has. Whatever
        was built from the old value before keeps meaning that.
        """
        new = self.operand(value)
        e = self.expr
        if new.__class__ is not self.__class__:
            common = new in PLAIN or CAPTURE.now is not None
            new = elementwise.constant(self, new, e.dtype, e.shape) if common else self.parameter(new)
        if new.expr.device != e.device:
            raise UsageError(
                f"assign: this tensor is on {e.device}, the value on {new.expr.device}\n"
                f"hint: move it with .to({e.device!r})"
            )
        if new.expr.dtype is not e.dtype:
            raise UsageError(
                f"assign: this tensor is {e.dtype.name}, the value {new.expr.dtype.name}; cast it first"
            )
        if new.expr.shape != e.shape:
            if arguments.broadcast((e.shape, new.expr.shape), "assign") != e.shape:
                raise UsageError(f"assign: this tensor has the shape {e.shape}, the value {new.expr.shape}")
            new = movement.expand(new, e.shape)
        if new is not self:
            with LOCK:
                _rebind(self, new)
        return self

    def replace(self, other: Tensor) -> Self:
        """Take over another tensor's value without storing it anywhere; return self."""
        if other.expr.shape != self.expr.shape or other.expr.dtype is not self.expr.dtype:
            raise UsageError(f"replace: {other!r} must have the shape and dtype of {self!r}")
        with LOCK:
            self.expr, self.leaves, self.epoch = other.expr, other.leaves, other.epoch
            self.recipe = Rebound(None)
            PENDING.pop(id(self), None)
        other.used = True
        return self

    # -- gradients --------------------------------------------------------------------------------------
    @property
    def requires_grad(self) -> bool | None:
        """Whether `backward` gives this tensor a gradient; None is undecided: optimisers make it True."""
        try:
            return self.state.wanted
        except AttributeError:
            return None

    @requires_grad.setter
    def requires_grad(self, wanted: bool | None) -> None:
        autograd.want((self,), wanted)

    def requires_grad_(self, wanted: bool = True) -> Self:  # noqa: FBT001, FBT002 - the field's signature
        """Set requires_grad; return self."""
        self.requires_grad = wanted
        return self

    @property
    def grad(self) -> Tensor | None:
        """The gradient that `backward` added up, or None. An optimiser's step takes it away."""
        try:
            return self.state.value
        except AttributeError:
            return None

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        if value is not None or hasattr(self, "state"):
            autograd.state_of(self).value = value

    def detach(self) -> Tensor:
        """Return the same value, constant to differentiation."""
        return _stopped(self)

    gradient = autograd.gradient
    backward = autograd.backward

    @classmethod
    @contextlib.contextmanager
    def train(cls, mode: bool = True) -> Iterator[None]:  # noqa: FBT001, FBT002 - the field's signature
        """Train inside a `with` block: dropout drops, batch norms use and learn the batch's statistics."""
        before = Tensor.training
        Tensor.training = mode
        try:
            yield
        finally:
            Tensor.training = before

    # -- methods by what they do ------------------------------------------------------------------------
    add = elementwise.add
    sub = elementwise.sub
    mul = elementwise.mul
    div = elementwise.div
    floordiv = elementwise.floordiv
    mod = elementwise.mod
    pow = elementwise.pow
    maximum = elementwise.maximum
    minimum = elementwise.minimum
    neg = elementwise.neg
    bitwise_and = elementwise.bitwise_and
    bitwise_or = elementwise.bitwise_or
    bitwise_xor = elementwise.bitwise_xor
    bitwise_not = elementwise.invert
    lshift = elementwise.lshift
    rshift = elementwise.rshift
    lt = elementwise.lt
    gt = elementwise.gt
    le = elementwise.le
    ge = elementwise.ge
    eq = elementwise.eq
    ne = elementwise.ne
    where = elementwise.where
    masked_fill = elementwise.masked_fill
    clip = elementwise.clip
    clamp = elementwise.clip
    exp = functions.exp
    exp2 = functions.exp2
    log = functions.log
    log2 = functions.log2
    log10 = functions.log10
    sqrt = functions.sqrt
    rsqrt = functions.rsqrt
    reciprocal = functions.reciprocal
    sin = functions.sin
    cos = functions.cos
    tan = functions.tan
    tanh = functions.tanh
    square = functions.square
    abs = functions.abs
    sign = functions.sign
    floor = functions.floor
    ceil = functions.ceil
    trunc = functions.trunc
    round = functions.round
    isnan = functions.isnan
    isinf = functions.isinf
    isfinite = functions.isfinite
    logical_not = functions.logical_not
    lerp = elementwise.lerp
    cast = elementwise.cast
    bitcast = elementwise.bitcast

    relu = activation.relu
    relu6 = activation.relu6
    leaky_relu = activation.leaky_relu
    elu = activation.elu
    sigmoid = activation.sigmoid
    logsigmoid = activation.logsigmoid
    silu = activation.silu
    swish = activation.silu
    gelu = activation.gelu
    quick_gelu = activation.quick_gelu
    softplus = activation.softplus
    softsign = activation.softsign
    mish = activation.mish
    hardsigmoid = activation.hardsigmoid
    hardswish = activation.hardswish
    hardtanh = activation.hardtanh

    reshape = movement.reshape
    view = movement.reshape
    permute = movement.permute
    transpose = movement.transpose
    expand = movement.expand
    flip = movement.flip
    shrink = movement.shrink
    pad = movement.pad
    squeeze = movement.squeeze
    unsqueeze = movement.unsqueeze
    flatten = movement.flatten
    unflatten = movement.unflatten
    repeat = movement.repeat
    repeat_interleave = movement.repeat_interleave
    split = movement.split
    chunk = movement.chunk
    cat = movement.cat
    stack = movement.stack
    roll = movement.roll
    tril = movement.tril
    triu = movement.triu
    contiguous = movement.contiguous
    windows = movement.windows
    meshgrid = movement.meshgrid

    sum = reduce.sum
    prod = reduce.prod
    max = reduce.max
    min = reduce.min
    any = reduce.any
    all = reduce.all
    mean = reduce.mean
    var = reduce.var
    std = reduce.std
    logsumexp = reduce.logsumexp
    argmax = reduce.argmax
    argmin = reduce.argmin
    cumsum = reduce.cumsum
    normalize = reduce.normalize
    count_nonzero = reduce.count_nonzero

    gather = indexing.gather
    take = indexing.take
    diagonal = indexing.diagonal

    matmul = linalg.matmul
    dot = linalg.dot
    linear = linalg.linear

    one_hot = creation.one_hot
    conv2d = nnops.conv2d
    conv_transpose2d = nnops.conv_transpose2d
    max_pool2d = nnops.max_pool2d
    avg_pool2d = nnops.avg_pool2d
    softmax = nnops.softmax
    log_softmax = nnops.log_softmax
    layernorm = nnops.layernorm
    rmsnorm = nnops.rmsnorm
    batchnorm = nnops.batchnorm
    cross_entropy = nnops.cross_entropy
    sparse_categorical_crossentropy = nnops.sparse_categorical_crossentropy
    nll_loss = nnops.nll_loss
    binary_crossentropy = nnops.binary_crossentropy
    binary_crossentropy_logits = nnops.binary_crossentropy_logits
    mse_loss = nnops.mse_loss
    dropout = nnops.dropout
    scaled_dot_product_attention = nnops.scaled_dot_product_attention
    sequential = nnops.sequential

    def float(self) -> Tensor:
        """Return the values as float32."""
        return elementwise.cast(self, dtypes.float32)

    def double(self) -> Tensor:
        """Return the values as float64."""
        return elementwise.cast(self, dtypes.float64)

    def half(self) -> Tensor:
        """Return the values as float16."""
        return elementwise.cast(self, dtypes.float16)

    def bfloat16(self) -> Tensor:
        """Return the values as bfloat16."""
        return elementwise.cast(self, dtypes.bfloat16)

    def int(self) -> Tensor:
        """Return the values as int32, truncated."""
        return elementwise.cast(self, dtypes.int32)

    def long(self) -> Tensor:
        """Return the values as int64, truncated."""
        return elementwise.cast(self, dtypes.int64)

    def bool(self) -> Tensor:
        """Return where values are not zero."""
        return elementwise.cast(self, dtypes.bool)

    # -- operators --------------------------------------------------------------------------------------
    __add__ = __radd__ = elementwise.add
    __sub__ = elementwise.sub
    __rsub__ = elementwise.rsub
    __mul__ = __rmul__ = elementwise.mul
    __truediv__ = elementwise.div
    __rtruediv__ = elementwise.rdiv
    __floordiv__ = elementwise.floordiv
    __rfloordiv__ = elementwise.rfloordiv
    __mod__ = elementwise.mod
    __rmod__ = elementwise.rmod
    __pow__ = elementwise.pow
    __rpow__ = elementwise.rpow
    __matmul__ = linalg.matmul
    __rmatmul__ = linalg.rmatmul
    __and__ = __rand__ = elementwise.bitwise_and
    __or__ = __ror__ = elementwise.bitwise_or
    __xor__ = __rxor__ = elementwise.bitwise_xor
    __lshift__ = elementwise.lshift
    __rlshift__ = elementwise.rlshift
    __rshift__ = elementwise.rshift
    __rrshift__ = elementwise.rrshift
    __neg__ = elementwise.neg
    __invert__ = elementwise.invert
    __abs__ = functions.abs
    __lt__ = elementwise.lt
    __gt__ = elementwise.gt
    __le__ = elementwise.le
    __ge__ = elementwise.ge
    __eq__ = elementwise.eq  # type: ignore[assignment]  # elementwise, as the field has it
    __ne__ = elementwise.ne  # type: ignore[assignment]  # as above
    __hash__ = object.__hash__
    __getitem__ = indexing.getitem
    __setitem__ = indexing.setitem
    __array_priority__ = 100.0
    __array_ufunc__ = None

    def __iadd__(self, other: Any) -> Self:
        return self.assign(elementwise.add(self, other))

    def __isub__(self, other: Any) -> Self:
        return self.assign(elementwise.sub(self, other))

    def __imul__(self, other: Any) -> Self:
        return self.assign(elementwise.mul(self, other))

    def __itruediv__(self, other: Any) -> Self:
        return self.assign(elementwise.div(self, other))

    def __ifloordiv__(self, other: Any) -> Self:
        return self.assign(elementwise.floordiv(self, other))

    def __imod__(self, other: Any) -> Self:
        return self.assign(elementwise.mod(self, other))

    def __ipow__(self, other: Any) -> Self:
        return self.assign(elementwise.pow(self, other))

    def __imatmul__(self, other: Any) -> Self:  # type: ignore[misc]  # lists too, as the others
        return self.assign(linalg.matmul(self, other))

    def __iand__(self, other: Any) -> Self:
        return self.assign(elementwise.bitwise_and(self, other))

    def __ior__(self, other: Any) -> Self:
        return self.assign(elementwise.bitwise_or(self, other))

    def __ixor__(self, other: Any) -> Self:
        return self.assign(elementwise.bitwise_xor(self, other))

    def __len__(self) -> Any:
        if not self.expr.shape:
            raise UsageError("a tensor of shape () has no length; item() gives its number")
        return self.expr.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        if not self.expr.shape:
            raise UsageError("a tensor of shape () cannot be iterated over; item() gives its number")
        return iter([indexing.getitem(self, i) for i in range(self.expr.shape[0])])

    def __contains__(self, value: object) -> Any:
        raise UsageError("`in` would have to compute; say (tensor == value).any().item()")

    def __bool__(self) -> Any:
        raise UsageError(
            f"the truth of {self!r} would have to be computed; say .item(), .any() or .all() to mean it"
        )

    def __float__(self) -> Any:
        return float(self.item())

    def __int__(self) -> Any:
        return int(self.item())

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        found = self.numpy()
        return found if dtype is None else found.astype(dtype)

    def __repr__(self) -> str:
        e = self.expr
        state = f"pending {e.op}" if e.op is not PARAM else "realized"
        if self.recipe.__class__ is Rebound and self.recipe.home is not None:
            state = f"assigned, pending {e.op}"
        return f"<Tensor {e.dtype.name}{list(e.shape)} on {e.device}, {state}>"


def _made(cls: type[Tensor], data: Any, dtype: DType | None, device: str | None) -> Tensor:
    """Return a tensor of what a user passes to the constructor."""
    if data.__class__ is cls:
        return data.to(device) if device is not None else elementwise.cast(data, data.expr.dtype)
    name = cls.device_name(device)
    if isinstance(data, (bool, int, float)):
        found = dtype or creation.default_dtype(data)
        return cls.of_part((source_expr(Ops.CONST, creation.suited(data, found), found, name), ()))
    if CAPTURE.now is not None:
        raise UsageError(
            "host data was made into a tensor inside a captured function: replays would see this one value\n"
            "hint: pass it as an argument, or make the tensor outside"
        )
    if isinstance(data, (bytes, bytearray, memoryview)):
        kind = dtype or dtypes.uint8
        if len(data) % kind.itemsize:
            raise UsageError(f"{len(data)} bytes are no whole number of {kind.name}")
        return of_bytes(cls, bytes(data), (len(data) // kind.itemsize,), kind, name)
    if hasattr(data, "__array__"):
        import numpy as np  # noqa: PLC0415 - only where arrays are passed

        raw, shape, kind = from_numpy(np.asarray(data))
        return of_bytes(cls, raw, shape, kind, name)
    if isinstance(data, (list, tuple, range)):
        numbers, shape = flatten(data)
        kind = dtype or dtype_of(numbers)
        return of_bytes(cls, pack(numbers, kind), shape, kind, name)
    raise UsageError(f"a tensor is made of numbers, lists, bytes or an array, not of {type(data).__name__}")


def _rebind(t: Tensor, new: Tensor) -> None:
    """Give a tensor a new expression; where it has memory, that is where the value goes."""
    recipe = t.recipe
    if recipe.__class__ is Rebound:
        home = recipe.home if recipe.home is not None else (t.leaves[0] if t.expr.op is PARAM else None)
    else:
        home = t.leaves[0] if t.expr.op is PARAM else None
    if home is not None:
        home.buffer.live()  # else the pending assign would fail later, for whoever computes what is pending
        if new.expr.op is PARAM:
            new = _stopped(new)
    t.expr, t.leaves, t.epoch = new.expr, new.leaves, new.epoch
    t.recipe = Rebound(home)
    if home is None and new.expr.op is PARAM:
        return
    number = id(t)
    PENDING[number] = threading.get_ident(), weakref.ref(t, lambda _: PENDING.pop(number, None))
