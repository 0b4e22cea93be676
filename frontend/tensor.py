"""The tensor: an expression and the realized leaves that it is over.

Tensors are lazy: nothing is computed before `realize`, `numpy`, `item`, ... Only `assign`, and the operations
built on it (in-place operators, `x[...] = y`, optimisers), change the value of a tensor. The new value is
stored in the same memory (`frontend.assignment`), and also changes the tensors that share elements with it
(`frontend.evaluation.views`). Tensors that were computed from the old value keep it. This module defines the
state, the computation and the reading of a tensor. Its other methods and its operators are functions of
`frontend.ops`, listed in the table `frontend.methods`.

Dtypes: `a + b` promotes by `compiler.dtype.promote`. A Python number takes the dtype of the tensor; a float
beside an integer tensor makes the result float32. Shapes broadcast, aligned at the last axis.

Not here: other operations (`frontend.ops`).
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Self, cast

from compiler.dtype import DType
from frontend import assignment, copies, transfer
from frontend.arguments import checks
from frontend.arguments.aliases import accepts_aliases, answering
from frontend.arguments.conversion import flag, shown
from frontend.autograd import engine
from frontend.device import LOCK, Device, DeviceName, device_name
from frontend.evaluation import gradient_state as grad_state
from frontend.evaluation import modes, printing
from frontend.evaluation.base import EPOCH, THREAD, KeptHistory
from frontend.evaluation.constants import stopped
from frontend.evaluation.expr import PARAM, leaf_expr
from frontend.evaluation.history import readable
from frontend.evaluation.printing import described
from frontend.evaluation.realize import realize_many, realize_one
from frontend.evaluation.storage import Leaf, in_memory, nested, read, to_numpy, unpack
from frontend.evaluation.trace import same
from frontend.evaluation.views import detach, is_alias, leave, owns
from frontend.exchange import Exchange
from frontend.later import AT_ONCE, later
from frontend.ops import casts, creation, indexing, movement
from hcq.errors import UsageError, UsageTypeError

if AT_ONCE:
    from frontend.distributed import placement
else:
    placement = later("frontend.distributed.placement")

if TYPE_CHECKING:
    import numpy as np

    from frontend.tensor_methods import Methods
else:
    from frontend.members import Methods


@answering
class Tensor(Methods, Exchange):
    """A lazy array of numbers of one dtype on one device.

    Operations return new tensors and compute nothing: `realize`, or reading a value (`numpy`, `item`, ...),
    does. Writes (`assign`, `+=`, `x[...] = y`) change this tensor and the tensors that share its elements.
    Dtypes, broadcasting and views: the module. A tensor may be used from any thread. `len` and iteration
    raise `UsageTypeError` for shape (), `bool`, `int`, `float` and formatting raise `UsageError` as `item`;
    as an index, a tensor that is not one integer raises `UsageTypeError`.

        x = Tensor.rand(4, 3)
        y = (x @ x.T).relu().sum(1)      # pending
        print(y.tolist())                # computed here
    """

    __slots__ = ("__dict__",)

    def __init__(
        self,
        data: Any = (),
        *sizes: int,
        dtype: DType | str | None = None,
        device: str | None = None,
        requires_grad: bool | None = None,
    ) -> None:
        """Make a tensor of a number, nested lists, a range, bytes (uint8), an array, or another tensor.

        A number becomes a constant. Lists, bytes and arrays are copied to the device by this call. Another
        tensor gives a tensor of its value, without its history, which shares memory until one of the two is
        written. `dtype` None: that of the array; for Python data float32 for floats, int64 for integers, bool
        for bools. `device` is a name such as "cpu" or "nv:0"; None: the default one, or that of the tensor.

        Integers alone, without `dtype`, are sizes, as in PyTorch: `Tensor(2, 3)` is NaN in the shape (2, 3);
        the number 3 is `tensor(3)`.

            Tensor([[1.0, 2.0], [3.0, 4.0]])                    # float32, shape (2, 2)
            Tensor(numpy_array, device="cpu", requires_grad=True)

        Raises `UsageError` for lists of unequal length, data that is no number, a number that does not fit
        the dtype, an unknown dtype or device, and requires_grad of integers; `OutOfMemoryError` when the
        device has no memory for the data.
        """
        wanted = checks.element_type(dtype)
        self.recipe = None
        self.used = False
        self.epoch = EPOCH[0]
        if sizes or (data.__class__ is int and wanted is None):
            if not all(s.__class__ is int for s in (data, *sizes)):
                raise UsageTypeError(
                    "Tensor: wanted data, or sizes alone; give dtype= and device= by their names"
                )
            made = self.__class__.full((data, *sizes), math.nan, dtype=wanted, device=device)
            self.expr, self.leaves = made.expr, made.leaves
        elif data.__class__ is self.__class__:
            data = stopped(data) if data.requires_grad else data
            made = data.to(device) if device is not None else casts.cast(data, data.expr.dtype)
            self.expr, self.leaves = made.expr, made.leaves
            if made is data:
                self.recipe = (same, made)
                self.epoch = made.epoch
                made.used = True
        elif hasattr(data, "scalar") and hasattr(data, "part"):  # a bound variable
            made = casts.cast(data.scalar(self.of_part(data.part)), "int64")
            self.expr, self.leaves = part = made.expr, made.leaves
        else:
            self.expr, self.leaves = part = creation.part_of_data(data, wanted, device)
            made = None
        if wanted is not None and self.expr.dtype is not wanted:
            cast = casts.cast(self.of_part(part) if made is None else made, wanted)
            self.expr, self.leaves, self.recipe = cast.expr, cast.leaves, None
        if requires_grad is not None:
            self.requires_grad = requires_grad

    def operand(self, value: Any) -> Any:
        """Return a value as the other operand of this tensor: a tensor on its device, or a Python number.

        Lists and arrays become tensors. Raises `UsageTypeError` for any other value.
        """
        if value.__class__ is self.__class__ or isinstance(value, (bool, int, float)):
            return value
        if hasattr(value, "dispatch"):
            raise UsageTypeError(f"wanted a tensor of fixed sizes, saw the shape {value.shape}")
        if getattr(value, "ndim", None) == 0 and hasattr(value, "item") and not hasattr(value, "expr"):
            return value.item()
        if hasattr(value, "scalar"):
            return casts.cast(value.scalar(self), checks.number_dtype(0, self.expr.dtype))
        if isinstance(value, (list, tuple, range)) or hasattr(value, "__array__"):
            return self.__class__(value, device=self.expr.device)
        raise UsageTypeError(f"wanted a tensor, a number, lists or an array, saw {type(value).__name__}")

    def parameter(self, value: float, dtype: DType | None = None) -> Tensor:
        """Return a number as a tensor of shape () in memory, so that other numbers use the same kernel.

        `dtype` None: the one beside this tensor. Raises as `number_dtype` and `element_type`, and
        `UsageError` for a number that the dtype cannot hold.
        """
        dtype = checks.element_type(dtype) or checks.number_dtype(value, self.expr.dtype)
        opened = Device[self.expr.device]
        return self.of_part((leaf_expr((), dtype, opened.name), (in_memory(opened, value, dtype),)))

    @property
    def shape(self) -> checks.Size:
        """The size of each axis, a tuple with PyTorch's `numel`."""
        return checks.Size(self.expr.shape)

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.expr.dtype

    @property
    def device(self) -> DeviceName:
        """The name of the device, a string with PyTorch's `type` and `index`."""
        return device_name(self.expr.device)

    @property
    def is_cpu(self) -> bool:
        """Whether the device is the host, "cpu"."""
        return self.expr.device.partition(":")[0] == "cpu"

    @property
    def is_cuda(self) -> bool:
        """Whether the device is an NVIDIA GPU, "nv" or an emulated one."""
        return self.expr.device.startswith("nv")

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.expr.shape)

    @property
    def T(self) -> Tensor:  # noqa: N802 - the field's name
        """This tensor with its axes in reverse order: a view."""
        return movement.permute(self, *range(len(self.expr.shape) - 1, -1, -1))

    @property
    def mT(self) -> Tensor:  # noqa: N802 - the field's name
        """This tensor with its last two axes exchanged, the transpose of each matrix: a view.

        Raises `UsageIndexError` for fewer than two axes.
        """
        return movement.transpose(self, -2, -1)

    mH = mT  # noqa: N815 - the field's name: numbers are real

    @property
    def H(self) -> Tensor:  # noqa: N802 - the field's name
        """The transpose of a matrix, as numbers are real. Raises `UsageError` for more than two axes."""
        return movement.t(self)

    @property
    def real(self) -> Tensor:
        """The tensor itself: numbers are real."""
        return self

    @property
    def itemsize(self) -> int:
        """The bytes of one element."""
        return self.expr.dtype.itemsize

    def dim(self) -> int:
        """Return the number of axes."""
        return len(self.expr.shape)

    def element_size(self) -> int:
        """Return the bytes of one element."""
        return self.expr.dtype.itemsize

    def cpu(self) -> Tensor:
        """Return the value on the device "cpu": see `to`."""
        return self.to("cpu")

    @property
    def is_realized(self) -> bool:
        """Whether the value is in memory, or being computed by submitted work."""
        return self.expr.op is PARAM

    def numel(self) -> int:
        """Return the number of elements."""
        return math.prod(self.expr.shape)

    nelement = numel

    @property
    def nbytes(self) -> int:
        """The bytes that the elements take."""
        return math.prod(self.expr.shape) * self.expr.dtype.itemsize

    @accepts_aliases
    def size(self, axis: int | None = None) -> Any:
        """Return the shape, or the size of one axis.

        Raises `UsageIndexError` for an axis that does not exist.
        """
        return self.shape if axis is None else self.expr.shape[checks.axis_of(axis, self.expr.shape, "size")]

    def is_floating_point(self) -> bool:
        """Return whether elements are floats."""
        return self.expr.dtype.is_float

    def realize(self, *others: Tensor) -> Self:
        """Compute the value, and those of `others` in the same launch; return self.

        Waiting: the call compiles if needed, submits the kernels and returns. The device may still be
        working; reading a value (`numpy`, `item`, ...) waits for it.

        Effects: a realized tensor has its value in memory, and no longer references the tensors that it was
        computed from. Its history for gradients ends here: call `backward` first. A tensor that is realized
        already does not change. A pending assignment is stored in the memory that the tensor has;
        copy-on-write: other tensors that alias the old contents get a copy first. Inside a captured function
        the thread's pending assignments are computed in the same launch, so that they share its work.

        Order: launches of one device run in the order of the calls. Tensors of several devices are computed
        in one launch for each.

        Threads: any thread may call it; one thread at a time submits (`frontend.device.LOCK`).

        Raises, and then leaves the tensors pending:
        - `UsageTypeError` for an argument that is no tensor.
        - `UsageError` for memory of a closed device, inside a traced method, and for a tensor beyond the
          address space; with validation for a hazard.
        - `UsageIndexError`, `UsageZeroDivisionError` under `HCQ_VALIDATE=1` for an invalid index or divisor.
        - `CompileError` when a kernel cannot be compiled; `OutOfMemoryError` when the device has no memory.
        - `DeviceFault` when the device has faulted before. A fault of this work is raised by the first call
          that waits for it.

            a, b = x + y, x * y
            a.realize(b)              # one launch; x and y are read once
        """
        if others:
            for t in others:
                checks.tensor(t, "realize", self)
            realize_many((self, *others))
        else:
            realize_one(self)
        return self

    def tobytes(self) -> bytes:
        """Return a copy of the elements as bytes, in row-major order and little-endian.

        Computes a pending tensor, and waits for the device. Raises `UsageError` inside a captured function,
        `DeviceFault` when the device has faulted, and what `realize` raises.
        """
        return read(*readable(self), bytes)

    @property
    def data(self) -> Self:
        """The tensor without its history: `detach()`. Writes to it change this tensor and leave no trace."""
        return self.detach()

    @data.setter
    def data(self, value: Tensor) -> None:
        """Give another value; views keep the old one, and gradients of earlier results are those of it."""
        if is_alias(self, value):
            return
        with type(self).no_grad(), LOCK:
            new = value.detach()
            leave(self)
            self.assign(new)

    @property
    def is_leaf(self) -> bool:
        """Whether the tensor has no history: it was made by the user, or needs no gradient."""
        cut = hasattr(self, "state") and self.state.past is KeptHistory.CUT  # a gradient
        own = owns(self) or grad_state.wants(self)  # else a leaf's value under another name: `x * 1`
        made = own and self.expr.op is PARAM and not any(x.origin for x in self.leaves if x.__class__ is Leaf)
        return cut or made or not transfer.flows(self, beyond=True)

    def numpy(self, *, force: bool = False) -> np.ndarray[Any, Any]:  # noqa: ARG002 - the field's signature
        """Return a copy of the value as a NumPy array of the same shape and dtype; bfloat16 as float32.

        `force` changes nothing: tensors with requires_grad are copied, too. Waits and raises as `tobytes`.
        """
        e, leaf = readable(self)
        return read(e, leaf, lambda data: to_numpy(data, e.shape, e.dtype))

    def tolist(self) -> Any:
        """Return the value as nested lists of Python numbers; for shape () as a number.

        Waits and raises as `tobytes`.
        """
        e, leaf = readable(self)
        return nested(read(e, leaf, lambda data: unpack(data, e.dtype)), e.shape)

    def item(self) -> Any:
        """Return the only element as a Python number: bool, int or float.

        Waits and raises as `tobytes`; also `UsageError` for a tensor that has not exactly one element.
        """
        if math.prod(self.expr.shape) != 1:
            raise UsageError(f"item() needs exactly one element, the shape is {self.expr.shape}")
        e, leaf = readable(self)
        return read(e, leaf, lambda data: unpack(data, e.dtype))[0]

    def clone(self) -> Tensor:
        """Return a pending tensor of the same value, in memory of its own; gradients flow through."""
        return movement.contiguous(self)

    to = transfer.to
    shard = placement.shard
    shard_ = placement.shard_
    replicate = placement.replicate
    replicate_ = placement.replicate_
    assign = assignment.assign
    replace = assignment.replace

    @property
    def requires_grad(self) -> bool:
        """Whether a gradient flows to or through the tensor: it was set, or it depends on one where it was.

        Setting it raises `UsageError` for a tensor that is no float, `UsageTypeError` for no bool. Setting
        None makes it undecided, as in a new tensor: an optimiser, or a module that lists its parameters, then
        sets it to True.
        """
        wanted = grad_state.decided(self)
        if wanted is None and grad_state.was_marked(self):  # of a layer that was not called yet
            grad_state.want((self,), True)
            return True
        return wanted if wanted is not None else self.expr.dtype.is_float and not self.is_leaf

    @requires_grad.setter
    def requires_grad(self, wanted: bool | None) -> None:
        wanted = wanted if wanted is None else flag(wanted, "requires_grad")
        grad_state.want((self,), wanted, cut=bool(wanted) and self.expr.dtype.is_float and self.is_leaf)

    @property
    def grad_fn(self) -> str | None:
        """The name of the operation that made the tensor; None for a leaf, and where no gradient flows."""
        return None if self.is_leaf else f"{self.expr.op.title()}Backward"

    def register_hook(self, hook: Callable[[Self], Self | None]) -> grad_state.HookHandle:
        """Let each `backward` call `hook(gradient)` for this tensor; `remove` of the result ends that.

        A result that is not None replaces the gradient, of a leaf alone. The tensor gets requires_grad, and
        keeps its gradient in `grad`. Raises `UsageTypeError` for no function, `UsageError` for a tensor that
        is no float.
        """
        return grad_state.add_hook(self, hook)

    def register_post_accumulate_grad_hook(self, hook: Callable[[Self], None]) -> grad_state.HookHandle:
        """Let each `backward` call `hook(tensor)` at its end for this leaf; `remove` of the result ends that.

        The hook runs inside `no_grad`: it may change the tensor in place.

        Raises `UsageTypeError` for no function, `UsageError` for a tensor that is no leaf with requires_grad.
        """
        if not callable(hook):
            raise UsageTypeError(f"register_post_accumulate_grad_hook: wanted a function, saw {shown(hook)}")
        if not (self.is_leaf and self.requires_grad):
            raise UsageError(f"{described(self)}: wanted a leaf with requires_grad for such a hook")
        return grad_state.HookHandle.of(grad_state.state_of(self).after, hook)

    @property
    def retains_grad(self) -> bool:
        """Whether `backward` stores the gradient of this tensor although it is no leaf."""
        return not self.is_leaf and grad_state.wants(self)

    @property
    def output_nr(self) -> int:
        """0: each tensor is the only result of its operation."""
        return 0

    def requires_grad_(self, wanted: bool = True) -> Self:  # noqa: FBT001, FBT002 - the field's signature
        """Set requires_grad; return self. Raises `UsageError` for a tensor that is no float."""
        self.requires_grad = wanted
        return self

    @property
    def grad(self) -> Tensor | None:
        """The gradient that `backward` accumulated; None: there is none. May be set to None or a tensor.

        `zero_grad` removes it. After the step of an optimiser it stays until the next `backward`, which
        starts a new one; in a captured function a step removes it. Setting it raises `UsageError` for another
        shape or dtype.
        """
        return cast("Tensor | None", grad_state.grad_from_outside(self))

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        if value is not None and (
            value.__class__ is not Tensor
            or value.expr.shape != self.expr.shape
            or value.expr.dtype is not self.expr.dtype
        ):
            raise UsageError(
                f"the gradient of {described(self)} is a {self.expr.dtype.name} tensor of its shape, "
                f"saw {described(value) if isinstance(value, Tensor) else value!r}"
            )
        if value is not None or hasattr(self, "state"):
            modes.changed((modes.GRAD, id(self)))
            state = grad_state.state_of(self)
            state.value, state.used = value, None

    _grad = grad
    detach = detach
    gradient = engine.gradient
    backward = engine.backward

    @classmethod
    @contextlib.contextmanager
    def train(cls, mode: bool = True) -> Iterator[None]:  # noqa: FBT001, FBT002 - the field's signature
        """Set the training mode of all layers inside a `with` block, instead of their own.

        In training, dropout is active and batch norms use batch statistics.

        Raises `UsageTypeError` for a `mode` that is no bool. The mode holds for the whole process.
        """
        before, wanted = Tensor.training, flag(mode, "train, mode")
        with modes.block(modes.TRAIN):
            Tensor.training = wanted
            try:
                yield
            finally:
                Tensor.training = before

    @classmethod
    @contextlib.contextmanager
    def no_grad(cls) -> Iterator[None]:
        """Compute without gradients inside a `with` block, or a function that is decorated.

        Results computed inside pass no gradient on, also if `backward` is called later. Views taken inside
        are detached (`detach`), and gradients flow as if tensors were not written inside. The mode is that of
        the thread.
        """
        before, THREAD.cut = THREAD.cut, True
        try:
            yield
        finally:
            THREAD.cut = before

    def __len__(self) -> Any:
        if not self.expr.shape:
            raise UsageTypeError("a tensor of shape () has no length; item() gives its number")
        return self.expr.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        if not self.expr.shape:
            raise UsageTypeError("a tensor of shape () cannot be iterated over; item() gives its number")
        return iter([indexing.getitem(self, i) for i in range(self.expr.shape[0])])

    def __reversed__(self) -> Tensor:
        return movement.flip(self, 0) if self.expr.shape else self

    def __contains__(self, value: object) -> Any:
        return bool((self == value).any().item())

    def __bool__(self) -> Any:
        if math.prod(self.expr.shape) != 1:
            raise UsageError(f"{described(self)} has no truth value: wanted one element; try .any().item()")
        return bool(self.item())

    def __index__(self) -> Any:
        if not (self.expr.dtype.is_int and math.prod(self.expr.shape) == 1):
            raise UsageTypeError(f"wanted a whole number, saw {described(self)}; one integer can be one")
        return self.item()

    def __float__(self) -> Any:
        return float(self.item())

    def __int__(self) -> Any:
        return int(self.item())

    __copy__ = copies.shallow
    __deepcopy__ = copies.deep
    __reduce__ = copies.reduced

    def __dir__(self) -> list[str]:
        return [name for name in dir(self.__class__) if not name.startswith("__")]

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        found = self.numpy()
        return found if dtype is None else found.astype(dtype)

    def __repr__(self) -> str:
        return printing.shown(self, flowing=not self.is_leaf)

    def _repr_html_(self) -> str:
        return printing.table(self)

    def __format__(self, spec: str) -> str:
        """Return the text of the only number of a tensor of shape (), and of any other as `str` does.

        Raises `UsageTypeError` for a format of a tensor with axes.
        """
        if not self.expr.shape:
            return format(self.item(), spec)
        if spec:
            raise UsageTypeError(
                f"format {spec!r} of the shape {self.expr.shape}: wanted one number; use item() or tolist()"
            )
        return repr(self)
