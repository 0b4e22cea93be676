"""Groups of processes under the names of `torch.distributed`, over MPI: one process a rank, on any machines.

`mpirun -n 4 python train.py` starts the ranks; MPI, through the package mpi4py, carries the bytes (the extra
`hcq[mpi]`). Tensors may be on any device; their values pass through host memory. Every collective is called
by all ranks in the same order, with tensors of one shape and dtype.

A collective that does not complete within the group's time limit raises `ProcessGroupError`, which names the
ranks that have not called it, and those that have ended. An exception that ends the program of one rank ends
those of all others. Arguments of other classes raise `UsageTypeError`.

    import frontend.distributed as dist

    dist.init_process_group()
    dist.all_reduce(x)                     # x: the sum over all ranks
    dist.destroy_process_group()

Not here: devices of one process (`mesh`), models (`parallel`). Next: the documentation of mpi4py.
"""

from __future__ import annotations

import atexit
import os
import pickle
import sys
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from enum import Enum
from importlib import import_module
from math import prod
from typing import TYPE_CHECKING, Any, Final

from compiler.dtype import dtypes
from frontend.arguments.checks import tensor, whole
from frontend.arguments.conversion import flag
from frontend.evaluation.history import readable
from frontend.evaluation.storage import CODES, allocated, read, stored
from frontend.tensor import Tensor
from hcq.errors import HcqError, UnsupportedError, UsageError

if TYPE_CHECKING:
    import numpy as np

TIMEOUT_S: Final = 300.0
"""Seconds that a collective may take, unless `init_process_group` is given others."""
_SPIN_S: Final = 2e-4
"""Seconds that a wait polls before it sleeps between polls."""
_LOOK_S: Final = 0.1
"""Seconds between two checks that the other processes are alive."""
_LEAVE_S: Final = 2.0
"""Seconds that a failed rank gives the others to raise their own error, before it ends them."""
_BACKENDS: Final = ("mpi", "gloo", "nccl", "cpu:gloo,cuda:nccl")
_PID: Final = 0
_CALLS: Final = 1
_LEFT: Final = 1 << 62
"""Number of process of a rank that ends because others did."""


class ProcessGroupError(HcqError):
    """A collective ended without a result: a rank is gone, or did not call it within the time limit.

    `ranks` are the ranks at fault, as far as they are known.
    """

    def __init__(self, text: str, ranks: Sequence[int] = ()) -> None:
        super().__init__(text)
        self.ranks = tuple(ranks)


class ReduceOp(Enum):
    """How a collective combines the tensors of the ranks. `AVG` is the sum divided by their number."""

    SUM = "SUM"
    AVG = "AVG"
    PRODUCT = "PROD"
    MIN = "MIN"
    MAX = "MAX"


class Work:
    """A collective in progress, which `async_op=True` returns."""

    def __init__(self, group: ProcessGroup, request: Any, name: str, finish: Callable[[], None]) -> None:
        self._group, self._request, self._name, self._finish = group, request, name, finish
        self._number = group.calls
        self._done = False

    def is_completed(self) -> bool:
        """Return whether `wait` would return at once."""
        return self._done or bool(self._request.Test())

    def wait(self) -> bool:
        """Wait until the tensor has its new value; return True. Raises `ProcessGroupError`."""
        if not self._done:
            self._group.until(self._request, self._name, self._number)
            self._done = True
            self._finish()
        return True


class ProcessGroup:
    """All processes that `mpirun` started; made by `init_process_group`."""

    def __init__(self, mpi: Any, timeout_s: float) -> None:
        import numpy as np  # noqa: PLC0415 - importing the frontend loads no NumPy

        self.mpi, self.timeout_s = mpi, timeout_s
        self.world = mpi.COMM_WORLD.Dup()
        self.rank, self.size = self.world.Get_rank(), self.world.Get_size()
        self.calls = 0
        """Number of collectives that this rank has called."""
        node = self.world.Split_type(mpi.COMM_TYPE_SHARED)
        window = mpi.Win.Allocate_shared(16, 8, comm=node)
        ranks = self.world.group.Translate_ranks(None, node.group)
        near = {r: n for r, n in enumerate(ranks) if n != mpi.UNDEFINED}
        self._near = {r: np.frombuffer(window.Shared_query(n)[0], "u8", 2) for r, n in near.items()}
        """Rank on this machine -> (number of its process, number of its calls), in memory that all share."""
        self._held = node, window
        self._near[self.rank][:] = os.getpid(), 0
        self.world.Barrier()

    def count(self) -> None:
        """Count a call of this rank, for the errors of the others."""
        self.calls += 1
        self._near[self.rank][_CALLS] = self.calls

    def until(self, request: Any, name: str, number: int) -> None:
        """Wait for a request of MPI. Raises `ProcessGroupError` after the limit, or when a rank ended."""
        start = look = time.monotonic()
        while not request.Test():
            now = time.monotonic()
            if now - start > _SPIN_S:
                time.sleep(min(1e-3, (now - start) / 10))
            if now - look > _LOOK_S:
                look = now
                self._check(name, number, now - start)

    def _check(self, name: str, number: int, waited_s: float) -> None:
        ended = [r for r, seen in self._near.items() if not _alive(int(seen[_PID]))]
        gone = [r for r in ended if self._near[r][_PID] != _LEFT] or ended
        what = f"{name}, collective {number} of rank {self.rank} of {self.size}"
        if gone:
            called = all(int(self._near[r][_CALLS]) >= number for r in gone)
            when = "before it was complete" if called else "without calling it"
            raise ProcessGroupError(
                f"{what}: {_ranks(gone)} ended {when}\n"
                "hint: its own error is above, or the system ended it (memory?)",
                gone,
            )
        if waited_s > self.timeout_s:
            late = [r for r, seen in self._near.items() if int(seen[_CALLS]) < number]
            seen = f"{_ranks(late)} did not call it" if late else "a rank on another machine did not call it"
            raise ProcessGroupError(
                f"{what}: not complete after {waited_s:.1f} s; {seen}\n"
                "hint: all ranks must make the same calls; init_process_group(timeout=...) sets the limit",
                late,
            )

    def leave(self, error: BaseException) -> None:
        """Count as ended by an error; give the ranks of this machine that wait for this one time to raise."""
        self._near[self.rank][_PID] = _LEFT if isinstance(error, ProcessGroupError) else 0
        end = time.monotonic() + _LEAVE_S
        while any(_alive(int(seen[_PID])) for seen in self._near.values()) and time.monotonic() < end:
            time.sleep(_LOOK_S / 10)


def _ranks(numbers: Sequence[int]) -> str:
    return f"rank{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"


def _alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:  # noqa: PTH123 - often
            return file.read().rpartition(")")[2].split()[0] not in {"Z", "X"}
    except OSError:
        return False


_group: list[ProcessGroup] = []


def group() -> ProcessGroup:
    """Return the process group. Raises `UsageError` before `init_process_group`."""
    if not _group:
        raise UsageError(
            "there is no process group\nhint: call frontend.distributed.init_process_group() first"
        )
    return _group[0]


def is_available() -> bool:
    """Return whether mpi4py is installed."""
    from importlib.util import find_spec  # noqa: PLC0415 - rarely needed

    return find_spec("mpi4py") is not None


def is_initialized() -> bool:
    """Return whether there is a process group."""
    return bool(_group)


def init_process_group(
    backend: str | None = None,
    init_method: str | None = None,  # noqa: ARG001 - the field's signature
    timeout: float | timedelta | None = None,
    world_size: int = -1,
    rank: int = -1,
) -> None:
    """Join the processes that `mpirun` started.

    `backend` is "mpi" or None; "gloo" and "nccl", which programs for PyTorch name, mean MPI, too.
    `init_method` has no effect: `mpirun` connects the processes. `timeout` is the limit of each collective,
    in seconds or as a `timedelta`. `world_size` and `rank`, if not negative, must be those of `mpirun`.

    Raises `UnsupportedError` without mpi4py or an MPI library; `UsageError` for other arguments, and when
    there is a group already.
    """
    if _group:
        raise UsageError("there is a process group already: init_process_group is called once")
    if backend is not None and backend not in _BACKENDS:
        raise UsageError(f"backend: wanted 'mpi', saw {backend!r}")
    try:
        mpi = import_module("mpi4py.MPI")  # this starts MPI
    except (ImportError, RuntimeError) as error:
        raise UnsupportedError(
            f"processes are joined by MPI, which is not here: {error}\n"
            "hint: pip install 'hcq[mpi]', then mpirun -n 2 python train.py"
        ) from None
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    made = ProcessGroup(mpi, TIMEOUT_S if seconds is None else float(seconds))
    for name, given, seen in (("world_size", world_size, made.size), ("rank", rank, made.rank)):
        if given >= 0 and given != seen:
            raise UsageError(
                f"{name}: {given} was wanted, mpirun started this process with {seen}\n"
                "hint: leave the argument out, and start with mpirun -n NUMBER python ..."
            )
    _group.append(made)
    _end_together(made)


def _end_together(made: ProcessGroup) -> None:
    """Make an exception that ends this program end those of all ranks."""
    before = sys.excepthook

    def hook(kind: Any, error: Any, trace: Any) -> None:
        before(kind, error, trace)
        if _group and made.size > 1:
            sys.stderr.write(f"rank {made.rank} of {made.size} ends the other ranks\n")
            sys.stderr.flush()
            made.leave(error)
            made.mpi.COMM_WORLD.Abort(1)

    sys.excepthook = hook
    atexit.register(_group.clear)


def destroy_process_group(group: None = None) -> None:
    """Leave the process group; all ranks call it. Nothing happens without one.

    Raises as `get_rank`.
    """
    _refuse_parts(group)
    if _group:
        barrier()
        _group.clear()


def _refuse_parts(group: object) -> None:
    """Raise `UnsupportedError` for a group of some of the processes."""
    if group is not None:
        raise UnsupportedError(f"wanted group=None, all processes, saw {group!r}\nhint: leave group out")


def get_rank(group: None = None) -> int:
    """Return the number of this process, from 0; -1 without a group.

    Raises `UnsupportedError` for a `group` of some of the processes.
    """
    _refuse_parts(group)
    return _group[0].rank if _group else -1


def get_world_size(group: None = None) -> int:
    """Return how many processes there are; -1 without a group. Raises as `get_rank`."""
    _refuse_parts(group)
    return _group[0].size if _group else -1


def get_backend(group: None = None) -> str:
    """Return "mpi". Raises as `get_rank`."""
    _refuse_parts(group)
    return "mpi"


def _array(t: Tensor) -> np.ndarray[Any, Any]:
    """Return a tensor's elements as an array that MPI takes, contiguous: 16-bit floats as float32."""
    found = t.detach().numpy()
    return found.astype("float32") if found.dtype.kind == "f" and found.dtype.itemsize < 4 else found


def _raw(t: Tensor) -> np.ndarray[Any, Any]:
    import numpy as np  # noqa: PLC0415 - as above

    return np.frombuffer(bytearray(t.detach().tobytes()), "u1")


def _in_place(t: Tensor, *, copy: bool) -> tuple[Any, Any, Tensor] | None:
    """Return an array to send, one to receive into, and the tensor of the latter: memory of a cpu device.

    The first is the memory of `t` itself, or with `copy` a copy of it. None where MPI does not take the
    elements as they lie: on other devices, of bools and of 16-bit floats, and where there are none.
    """
    import numpy as np  # noqa: PLC0415 - as above

    e, leaf = readable(t.detach())
    kind = e.device.partition(":")[0], "," in e.device, e.dtype.name in CODES
    if kind != ("cpu", False, True) or e.dtype in {dtypes.bool, dtypes.float16} or 0 in e.shape:
        return None
    made = t.of_part(allocated(e.shape, e.dtype, e.device))
    found = made.leaves[0].buffer
    received = np.frombuffer(found.host(), e.dtype.name, prod(e.shape))
    found.count_as_written()
    given = read(e, leaf, lambda data: np.frombuffer(data, e.dtype.name))
    return given.copy() if copy else given, received, made


def _store(t: Tensor, data: Any) -> None:
    """Assign an array of numbers to a tensor."""
    with Tensor.no_grad():
        t.assign(Tensor(data.reshape(t.shape), dtype=t.dtype, device=t.device))


def _store_bytes(t: Tensor, data: Any) -> None:
    """Assign the bytes of all elements to a tensor. Raises `UsageError` for another number of bytes."""
    with Tensor.no_grad():
        t.assign(t.of_part(stored(memoryview(data), t.shape, t.dtype, t.device)))


def _begin(name: str, request: Any, finish: Callable[[], None], *, async_op: bool) -> Work | None:
    work = Work(group(), request, name, finish)
    if flag(async_op, f"{name}, async_op"):
        return work
    work.wait()
    return None


def _counted() -> ProcessGroup:
    found = group()
    found.count()
    return found


def _operation(op: ReduceOp, t: Tensor, name: str) -> Any:
    if not isinstance(op, ReduceOp):
        raise UsageError(f"{name}, op: wanted a ReduceOp, saw {op!r}")
    if op is ReduceOp.AVG and not t.dtype.is_float:
        raise UsageError(f"{name}: AVG is a mean of floats, saw {t.dtype.name}")
    if t.dtype is dtypes.bool:
        op = {ReduceOp.SUM: ReduceOp.MAX, ReduceOp.PRODUCT: ReduceOp.MIN}.get(op, op)
    return getattr(group().mpi, "SUM" if op is ReduceOp.AVG else op.value)


def all_reduce(t: Tensor, op: ReduceOp = ReduceOp.SUM, *, async_op: bool = False) -> Work | None:
    """Replace a tensor by the elementwise reduction of the tensors of all ranks.

    Floats of 16 bits are reduced in float32 and rounded once; bools by "or" for SUM and MAX, by "and" for
    PRODUCT and MIN. With `async_op` the tensor has its value after `Work.wait`. MPI reads the memory of a
    tensor on a cpu device, and writes into other memory, which is copied into the tensor once. Raises
    `ProcessGroupError`, and `UsageError` for another op.
    """
    tensor(t, "all_reduce", t)
    how = _operation(op, t, "all_reduce")
    memory, made = _in_place(t, copy=flag(async_op, "all_reduce, async_op")), _counted()
    if memory is not None:
        given, data, value = memory
        request = made.world.Iallreduce(given, data, how)
    else:
        data = _array(t)
        data = data.astype("u1") if t.dtype is dtypes.bool else data
        request = made.world.Iallreduce(made.mpi.IN_PLACE, data, how)

    def finish() -> None:
        if op is ReduceOp.AVG:
            data[...] /= data.dtype.type(made.size)
        if memory is None:
            _store(t, data.astype("bool") if t.dtype is dtypes.bool else data)
            return
        with Tensor.no_grad():
            t.assign(value)

    return _begin("all_reduce", request, finish, async_op=async_op)


def reduce(t: Tensor, dst: int, op: ReduceOp = ReduceOp.SUM) -> None:
    """As `all_reduce`, but only the tensor of rank `dst` changes."""
    same = t.clone().realize()
    all_reduce(same, op)
    if get_rank() == whole(dst, "reduce, dst"):
        with Tensor.no_grad():
            t.assign(same)


def broadcast(t: Tensor, src: int, *, async_op: bool = False) -> Work | None:
    """Replace a tensor by that of rank `src`. Raises `ProcessGroupError`, `UsageError` for no such rank."""
    tensor(t, "broadcast", t)
    root, data = _rank(src, "broadcast, src"), _raw(t)
    made = _counted()
    request = made.world.Ibcast(data, root)
    return _begin("broadcast", request, lambda: _store_bytes(t, data), async_op=async_op)


def _rank(number: int, what: str) -> int:
    found, size = whole(number, what), group().size
    if not 0 <= found < size:
        raise UsageError(f"{what}: wanted a rank of 0 to {size - 1}, saw {number}")
    return found


def all_gather(tensors: list[Tensor], t: Tensor) -> None:
    """Store the tensors of all ranks into `tensors`, one for each rank.

    Raises `ProcessGroupError`, and `UsageError` for another number of tensors.
    """
    found = _gathered(t, "all_gather")
    if len(tensors) != len(found):
        raise UsageError(f"all_gather: wanted a list of {len(found)} tensors, one a rank, saw {len(tensors)}")
    for out, row in zip(tensors, found, strict=True):
        _store_bytes(out, row)


def all_gather_into_tensor(out: Tensor, t: Tensor) -> None:
    """Store the tensors of all ranks, joined along axis 0, into `out`. Raises `ProcessGroupError`."""
    _store_bytes(out, _gathered(t, "all_gather_into_tensor").reshape(-1))


def _gathered(t: Tensor, name: str) -> Any:
    import numpy as np  # noqa: PLC0415 - as above

    tensor(t, name, t)
    data = _raw(t)
    made = _counted()
    found = np.empty((made.size, data.size), "u1")
    _begin(name, made.world.Iallgather(data, found), lambda: None, async_op=False)
    return found


def reduce_scatter_tensor(out: Tensor, t: Tensor, op: ReduceOp = ReduceOp.SUM) -> None:
    """Store this rank's part of axis 0 of the reduction of all tensors into `out`; see `all_reduce`."""
    whole_one = t.clone().realize()
    all_reduce(whole_one, op)
    size = t.shape[0] // get_world_size()
    with Tensor.no_grad():
        out.assign(whole_one[get_rank() * size : (get_rank() + 1) * size])


def all_to_all_single(out: Tensor, t: Tensor) -> None:
    """Send each rank its equal part of axis 0, and store what the ranks sent, joined along axis 0.

    Raises `UsageError` for an axis that does not divide, `ProcessGroupError`.
    """
    size = get_world_size()
    if t.shape[0] % size:
        raise UsageError(f"all_to_all_single: axis 0 of {t.shape} does not divide by {size} ranks")
    data = _raw(t)
    found, made = data.copy(), _counted()
    _begin(
        "all_to_all_single",
        made.world.Ialltoall(data, found),
        lambda: _store_bytes(out, found),
        async_op=False,
    )


def send(t: Tensor, dst: int, tag: int = 0) -> None:
    """Send a tensor to rank `dst`, which calls `recv`. Raises as `broadcast`."""
    data, made = _raw(t), group()
    request = made.world.Isend(data, _rank(dst, "send, dst"), tag)
    made.until(request, "send", made.calls)


def recv(t: Tensor, src: int, tag: int = 0) -> int:
    """Replace a tensor by the one that rank `src` sends; return `src`. Errors as of `send`."""
    data, made = _raw(t), group()
    request = made.world.Irecv(data, _rank(src, "recv, src"), tag)
    made.until(request, "recv", made.calls)
    _store_bytes(t, data)
    return src


def barrier() -> None:
    """Wait until all ranks have called it. Raises `ProcessGroupError`."""
    made = _counted()
    _begin("barrier", made.world.Ibarrier(), lambda: None, async_op=False)


def broadcast_object_list(objects: list[Any], src: int = 0) -> None:
    """Replace the objects of a list by those of rank `src`, which are pickled. Raises as `broadcast`."""
    found = all_gather_object_of(objects)
    objects[:] = found[_rank(src, "broadcast_object_list, src")]


def all_gather_object(objects: list[Any], value: Any) -> None:
    """Store the objects of all ranks, which are pickled, into a list. Raises `ProcessGroupError`."""
    objects[:] = all_gather_object_of(value)


def all_gather_object_of(value: Any) -> list[Any]:
    """Return the objects of all ranks, which are pickled. Raises `ProcessGroupError`."""
    import numpy as np  # noqa: PLC0415 - as above

    data = np.frombuffer(pickle.dumps(value), "u1")
    made = _counted()
    sizes = np.empty(made.size, "i8")
    _begin(
        "all_gather_object", made.world.Iallgather(np.array([data.size]), sizes), lambda: None, async_op=False
    )
    found = np.empty(int(sizes.sum()), "u1")
    request = made.world.Iallgatherv(data, [found, sizes.astype("i4")])
    _begin("all_gather_object", request, lambda: None, async_op=False)
    ends = np.cumsum(sizes)
    return [pickle.loads(found[e - n : e].tobytes()) for e, n in zip(ends, sizes, strict=True)]  # noqa: S301 - of the same program
