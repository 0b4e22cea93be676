"""Collectives of tensors, and messages, between the processes of a group, under PyTorch's names, over MPI.

Tensors may be on any device; their values pass through host memory. All ranks of a group make the same calls,
with tensors of one shape and dtype. `group` is one of `new_group`, None for all processes; outside of a group
nothing happens. `src` and `dst` are ranks among all processes, `group_src` and `group_dst` those of the
group. With `async_op` a tensor has its new value after `wait` of the `Work` that is returned. Every function
raises `ProcessGroupError`, `UsageTypeError` for no tensors, and `UsageError` for tensors of another number,
size or dtype, which is seen before anything is sent.

Not here: the processes (`processes`), objects (`objects`). Next: the documentation of mpi4py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from math import prod
from typing import Any

import numpy as np

from compiler.dtype import dtypes
from frontend.arguments import checks
from frontend.arguments.conversion import flag
from frontend.distributed.ranks.processes import ProcessGroup, Work, joined
from frontend.evaluation.history import readable
from frontend.evaluation.storage import CODES, allocated, read, stored
from frontend.tensor import Tensor
from hcq.errors import UsageError

Group = ProcessGroup | None


class ReduceOp(Enum):
    """How a collective combines the tensors of the ranks.

    `AVG`, of floats, is the sum divided by their number. The last three are of bools and integers.
    """

    SUM = "SUM"
    AVG = "AVG"
    PRODUCT = "PROD"
    MIN = "MIN"
    MAX = "MAX"
    BAND = "BAND"
    BOR = "BOR"
    BXOR = "BXOR"


def _numbers(t: Tensor) -> np.ndarray[Any, Any]:
    """Return a tensor's elements as numbers that MPI reduces: 16-bit floats as float32, bools as bytes."""
    found = t.detach().numpy()
    if t.dtype is dtypes.bool:
        return found.astype("u1")
    return found.astype("float32") if found.dtype.kind == "f" and found.dtype.itemsize < 4 else found


def _kind(t: Tensor) -> str:
    return f"{t.numel()} {t.dtype.name}"


def _raw(t: Tensor) -> np.ndarray[Any, Any]:
    return np.frombuffer(bytearray(t.detach().tobytes()), "u1")


def _joined(rows: Sequence[Any]) -> Any:
    return np.concatenate([row.reshape(-1) for row in rows])


def _in_place(t: Tensor, *, copy: bool) -> tuple[Any, Any, Tensor] | None:
    """Return an array to send, one to receive into, and the tensor of the latter: memory of a cpu device.

    The first is the memory of `t` itself, or with `copy` a copy of it. None where MPI does not take the
    elements as they lie: on other devices, of bools and of 16-bit floats, and where there are none.
    """
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


def _assign(t: Tensor, value: Tensor) -> None:
    with Tensor.no_grad():
        t.assign(value)


def _store(t: Tensor, data: Any) -> None:
    """Assign an array of numbers to a tensor."""
    data = data.astype("bool") if t.dtype is dtypes.bool else data
    _assign(t, Tensor(data.reshape(t.shape), dtype=t.dtype, device=t.device))


def _store_bytes(t: Tensor, data: Any) -> None:
    """Assign the bytes of all elements to a tensor."""
    _assign(t, t.of_part(stored(memoryview(data), t.shape, t.dtype, t.device)))


def _store_each(tensors: Sequence[Tensor], data: Any) -> None:
    """Assign bytes to tensors, one after the other."""
    at = 0
    for t in tensors:
        _store_bytes(t, data[at : at + t.nbytes])
        at += t.nbytes


def _begin(
    made: ProcessGroup, name: str, request: Any, finish: Callable[[], Any], async_op: bool  # noqa: FBT001
) -> Work | None:  # fmt: skip
    work = Work(made, request, name, finish)
    if flag(async_op, f"{name}, async_op"):
        return work
    work.wait()
    return None


def _checked(name: str, of: Tensor, count: int, tensors: Any) -> list[Tensor]:
    """Return tensors that have the dtype and number of elements of one, and are as many as wanted."""
    checks.tensor(of, name, of)
    found = list(tensors)
    if len(found) != count:
        raise UsageError(f"{name}: wanted a list of {count} tensors, one a rank, saw {len(found)}")
    for t in found:
        _agrees(name, of.numel(), of, t)
    return found


def _agrees(name: str, count: int, of: Tensor, t: Tensor) -> None:
    """Raise `UsageError` unless a tensor has `count` elements of the dtype of another one."""
    checks.tensor(t, name, t)
    if t.numel() != count or t.dtype is not of.dtype:
        raise UsageError(
            f"{name}: wanted {count} elements of {of.dtype.name}, saw {t.dtype.name}{list(t.shape)}"
        )


def _operation(made: ProcessGroup, op: ReduceOp, t: Tensor, name: str) -> Any:
    checks.tensor(t, name, t)
    if not isinstance(op, ReduceOp):
        raise UsageError(f"{name}, op: wanted a ReduceOp, saw {op!r}")
    if op is ReduceOp.AVG and not t.dtype.is_float:
        raise UsageError(f"{name}: AVG is a mean of floats, saw {t.dtype.name}")
    if op in {ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR} and t.dtype.is_float:
        raise UsageError(f"{name}: {op.name} is of bools and integers, saw {t.dtype.name}")
    if t.dtype is dtypes.bool:
        op = {ReduceOp.SUM: ReduceOp.MAX, ReduceOp.PRODUCT: ReduceOp.MIN}.get(op, op)
    return getattr(made.mpi, "SUM" if op is ReduceOp.AVG else op.value)


def _averaged(made: ProcessGroup, op: ReduceOp, data: Any) -> Any:
    if op is ReduceOp.AVG:
        data[...] /= data.dtype.type(made.size)
    return data


def all_reduce(
    tensor: Tensor, op: ReduceOp = ReduceOp.SUM, group: Group = None, async_op: bool = False  # noqa: FBT001, FBT002 - the field's signature
) -> Work | None:  # fmt: skip
    """Replace a tensor by the elementwise reduction of the tensors of all ranks.

    Floats of 16 bits are reduced in float32 and rounded once; bools by "or" for SUM and MAX, by "and" for
    PRODUCT and MIN. MPI reads the memory of a tensor on a cpu device, and writes into other memory, which is
    copied into the tensor once. Raises as stated above, and `UsageError` for another op.
    """
    if (made := joined(group)).rank < 0:
        return None
    how = _operation(made, op, tensor, "all_reduce")
    memory = _in_place(tensor, copy=flag(async_op, "all_reduce, async_op"))
    world = made.counted(f"all_reduce of {_kind(tensor)}, {op.name}")
    if memory is not None:
        given, data, value = memory
        request = world.Iallreduce(given, data, how)
    else:
        data = _numbers(tensor)
        request = world.Iallreduce(made.mpi.IN_PLACE, data, how)

    def finish() -> None:
        _averaged(made, op, data)
        if memory is None:
            _store(tensor, data)
        else:
            _assign(tensor, value)

    return _begin(made, "all_reduce", request, finish, async_op)


def reduce(  # noqa: PLR0917 - the field's signature
    tensor: Tensor, dst: int | None = None, op: ReduceOp = ReduceOp.SUM, group: Group = None,
    async_op: bool = False, group_dst: int | None = None,  # noqa: FBT001, FBT002 - as above
) -> Work | None:  # fmt: skip
    """As `all_reduce`, but only the tensor of rank `dst` changes."""
    if (made := joined(group)).rank < 0:
        return None
    how, root = _operation(made, op, tensor, "reduce"), made.rank_of(dst, "reduce, dst", group_dst)
    given = _numbers(tensor)
    found = given.copy() if made.rank == root else None
    world = made.counted(f"reduce of {_kind(tensor)}, {op.name}, to rank {made.ranks[root]}")
    request = world.Ireduce(given, found, how, root)
    finish = (lambda: None) if found is None else (lambda: _store(tensor, _averaged(made, op, found)))
    return _begin(made, "reduce", request, finish, async_op)


def broadcast(
    tensor: Tensor, src: int | None = None, group: Group = None, async_op: bool = False,  # noqa: FBT001, FBT002 - as above
    group_src: int | None = None,
) -> Work | None:  # fmt: skip
    """Replace a tensor by that of rank `src`."""
    if (made := joined(group)).rank < 0:
        return None
    _agrees("broadcast", tensor.numel(), tensor, tensor)
    root = made.rank_of(src, "broadcast, src", group_src)
    data = _raw(tensor) if made.rank == root else np.empty(tensor.nbytes, "u1")
    request = made.counted(f"broadcast of {_kind(tensor)} from rank {made.ranks[root]}").Ibcast(data, root)
    return _begin(made, "broadcast", request, lambda: _store_bytes(tensor, data), async_op)


def all_gather(
    tensor_list: list[Tensor], tensor: Tensor, group: Group = None, async_op: bool = False  # noqa: FBT001, FBT002 - as above
) -> Work | None:  # fmt: skip
    """Store the tensors of all ranks into a list of tensors, one for each rank."""
    if (made := joined(group)).rank < 0:
        return None
    return _gathered(
        made, "all_gather", _checked("all_gather", tensor, made.size, tensor_list), tensor, async_op
    )


def all_gather_into_tensor(
    output_tensor: Tensor, input_tensor: Tensor, group: Group = None, async_op: bool = False  # noqa: FBT001, FBT002 - as above
) -> Work | None:  # fmt: skip
    """Store the tensors of all ranks, one after the other, into one tensor."""
    if (made := joined(group)).rank < 0:
        return None
    _agrees("all_gather_into_tensor", made.size * input_tensor.numel(), input_tensor, output_tensor)
    return _gathered(made, "all_gather_into_tensor", [output_tensor], input_tensor, async_op)


def _gathered(made: ProcessGroup, name: str, outs: list[Tensor], t: Tensor, async_op: bool) -> Work | None:  # noqa: FBT001 - as above
    data = _raw(t)
    found = np.empty(made.size * data.size, "u1")
    request = made.counted(f"{name} of {_kind(t)}").Iallgather(data, found)
    return _begin(made, name, request, lambda: _store_each(outs, found), async_op)


def gather(  # noqa: PLR0917 - as above
    tensor: Tensor, gather_list: list[Tensor] | None = None, dst: int | None = None, group: Group = None,
    async_op: bool = False, group_dst: int | None = None,  # noqa: FBT001, FBT002 - as above
) -> Work | None:  # fmt: skip
    """Store the tensors of all ranks into the list of rank `dst`, by default 0; others give no list."""
    if (made := joined(group)).rank < 0:
        return None
    root = made.rank_of(0 if dst is None and group_dst is None else dst, "gather, dst", group_dst)
    outs = _listed_at(made, "gather", root, tensor, gather_list)
    data, found = _raw(tensor), np.empty(made.size * tensor.nbytes, "u1") if made.rank == root else None
    request = made.counted(f"gather of {_kind(tensor)} to rank {made.ranks[root]}").Igather(data, found, root)
    return _begin(made, "gather", request, lambda: _store_each(outs, found), async_op)


def scatter(  # noqa: PLR0917 - as above
    tensor: Tensor, scatter_list: list[Tensor] | None = None, src: int | None = None, group: Group = None,
    async_op: bool = False, group_src: int | None = None,  # noqa: FBT001, FBT002 - as above
) -> Work | None:  # fmt: skip
    """Replace a tensor by this rank's of the list of rank `src`, by default 0; others give no list."""
    if (made := joined(group)).rank < 0:
        return None
    root = made.rank_of(0 if src is None and group_src is None else src, "scatter, src", group_src)
    given = _listed_at(made, "scatter", root, tensor, scatter_list)
    data = _joined([_raw(t) for t in given]) if given else None
    found = np.empty(tensor.nbytes, "u1")
    world = made.counted(f"scatter of {_kind(tensor)} from rank {made.ranks[root]}")
    request = world.Iscatter(data, found, root)
    return _begin(made, "scatter", request, lambda: _store_bytes(tensor, found), async_op)


def _listed_at(made: ProcessGroup, name: str, root: int, t: Tensor, given: Any) -> list[Tensor]:
    """Return the list that the root gives; an empty one on other ranks, which give none."""
    if made.rank != root and given:
        raise UsageError(f"{name}: only rank {made.ranks[root]} gives a list of tensors, saw {len(given)}")
    return _checked(name, t, made.size if made.rank == root else 0, given or ())


def reduce_scatter_tensor(
    output: Tensor, input: Tensor, op: ReduceOp = ReduceOp.SUM, group: Group = None,
    async_op: bool = False,  # noqa: FBT001, FBT002 - as above
) -> Work | None:  # fmt: skip
    """Store this rank's equal part of the elements of the reduction of all tensors; see `all_reduce`."""
    if (made := joined(group)).rank < 0:
        return None
    _agrees("reduce_scatter_tensor", made.size * output.numel(), output, input)
    return _scattered(made, "reduce_scatter_tensor", output, [input], op, async_op)


def reduce_scatter(
    output: Tensor, input_list: list[Tensor], op: ReduceOp = ReduceOp.SUM, group: Group = None,
    async_op: bool = False,  # noqa: FBT001, FBT002 - as above
) -> Work | None:  # fmt: skip
    """Store the reduction of the tensors that all ranks have for this one in their lists."""
    if (made := joined(group)).rank < 0:
        return None
    given = _checked("reduce_scatter", output, made.size, input_list)
    return _scattered(made, "reduce_scatter", output, given, op, async_op)


def _scattered(  # noqa: PLR0917 - internal
    made: ProcessGroup, name: str, out: Tensor, given: list[Tensor], op: ReduceOp, async_op: bool  # noqa: FBT001 - as above
) -> Work | None:  # fmt: skip
    how, data = _operation(made, op, out, name), _joined([_numbers(t) for t in given])
    found = data[: out.numel()].copy()
    request = made.counted(f"{name} of {_kind(out)}, {op.name}").Ireduce_scatter_block(data, found, how)
    return _begin(made, name, request, lambda: _store(out, _averaged(made, op, found)), async_op)


def all_to_all(
    output_tensor_list: list[Tensor], input_tensor_list: list[Tensor], group: Group = None,
    async_op: bool = False,  # noqa: FBT001, FBT002 - as above
) -> Work | None:  # fmt: skip
    """Send each rank one tensor of a list, and store what the ranks sent; sizes may differ."""
    if (made := joined(group)).rank < 0:
        return None
    sizes = []
    for tensors in (input_tensor_list, output_tensor_list):
        if len(tensors) != made.size:
            raise UsageError(f"all_to_all: wanted {made.size} tensors, one a rank, saw {len(tensors)}")
        for t in tensors:
            _agrees("all_to_all", t.numel(), input_tensor_list[0], t)
        sizes.append([t.nbytes for t in tensors])
    data = _joined([_raw(t) for t in input_tensor_list])
    return _exchanged(made, "all_to_all", data, sizes, output_tensor_list, async_op)


def all_to_all_single(  # noqa: PLR0917 - the field's signature
    output: Tensor, input: Tensor, output_split_sizes: Sequence[int] | None = None,
    input_split_sizes: Sequence[int] | None = None, group: Group = None, async_op: bool = False,  # noqa: FBT001, FBT002 - as above
) -> Work | None:  # fmt: skip
    """Send each rank its part of axis 0, and store what the ranks sent, joined along axis 0.

    Parts are equal, or of the given sizes. Raises `UsageError` for an axis that does not divide, too.
    """
    if (made := joined(group)).rank < 0:
        return None
    if output.dtype is not input.dtype:
        raise UsageError(
            f"all_to_all_single: wanted one dtype, saw {output.dtype.name} and {input.dtype.name}"
        )
    sizes = []
    for t, splits in ((input, input_split_sizes), (output, output_split_sizes)):
        rows = t.shape[0]
        parts = list(splits) if splits else [rows // made.size] * made.size
        if sum(parts) != rows or len(parts) != made.size:
            raise UsageError(
                f"all_to_all_single: axis 0 of {list(t.shape)} does not divide by {made.size} ranks"
                f"{f' into {parts}' if splits else ''}"
            )
        sizes.append([n * (t.nbytes // max(rows, 1)) for n in parts])
    return _exchanged(made, "all_to_all_single", _raw(input), sizes, [output], async_op)


def _exchanged(  # noqa: PLR0917 - internal
    made: ProcessGroup, name: str, data: Any, sizes: list[list[int]], outs: list[Tensor], async_op: bool  # noqa: FBT001 - as above
) -> Work | None:  # fmt: skip
    own, wanted = (each[made.rank] for each in sizes)
    if own != wanted:
        raise UsageError(f"{name}: this rank sends {own} bytes to itself, and receives {wanted} from itself")
    found = np.empty(sum(sizes[1]), "u1")
    world = made.counted(f"{name} of {outs[0].dtype.name}", sizes)
    request = world.Ialltoallv([data, sizes[0]], [found, sizes[1]])
    return _begin(made, name, request, lambda: _store_each(outs, found), async_op)


def isend(
    tensor: Tensor, dst: int | None = None, group: Group = None, tag: int = 0, group_dst: int | None = None
) -> Work | None:  # fmt: skip
    """Begin to send a tensor to rank `dst`, which calls `recv` or `irecv`."""
    if (made := joined(group)).rank < 0:
        return None
    _agrees("send", tensor.numel(), tensor, tensor)
    data, to = _raw(tensor), made.rank_of(dst, "send, dst", group_dst)
    return Work(made, made.world.Isend(data, to, tag), "send", lambda: data)


def irecv(
    tensor: Tensor, src: int | None = None, group: Group = None, tag: int = 0, group_src: int | None = None
) -> Work | None:  # fmt: skip
    """Begin to replace a tensor by the one that rank `src`, or without one any rank, sends."""
    if (made := joined(group)).rank < 0:
        return None
    _agrees("recv", tensor.numel(), tensor, tensor)
    given = src is not None or group_src is not None
    data, root = np.empty(tensor.nbytes, "u1"), made.mpi.ANY_SOURCE
    root = made.rank_of(src, "recv, src", group_src) if given else root

    def finish() -> None:
        rank, size = work.received
        if size != data.size:
            raise UsageError(f"recv: wanted {data.size} bytes, rank {made.ranks[rank]} sent {size}")
        _store_bytes(tensor, data)

    work = Work(made, made.world.Irecv(data, root, tag), "recv", finish)
    return work


def send(
    tensor: Tensor, dst: int | None = None, group: Group = None, tag: int = 0, group_dst: int | None = None
) -> None:  # fmt: skip
    """Send a tensor to rank `dst`, which calls `recv` or `irecv`."""
    work = isend(tensor, dst, group, tag, group_dst)
    if work is not None:
        work.wait()


def recv(
    tensor: Tensor, src: int | None = None, group: Group = None, tag: int = 0, group_src: int | None = None
) -> int:  # fmt: skip
    """Replace a tensor by the one that rank `src`, or without one any rank, sends; return that rank."""
    work = irecv(tensor, src, group, tag, group_src)
    if work is None:
        return -1
    work.wait()
    return joined(group).ranks[work.received[0]]


class P2POp:
    """A message for `batch_isend_irecv`: `isend` or `irecv`, a tensor, and the rank of the other process."""

    def __init__(  # noqa: PLR0917 - as above
        self, op: Any, tensor: Tensor, peer: int | None = None, group: Group = None, tag: int = 0,
        group_peer: int | None = None,
    ) -> None:  # fmt: skip
        self.arguments = tensor, peer, group, tag, group_peer
        if op not in {isend, irecv}:
            raise UsageError(f"P2POp: wanted isend or irecv, saw {op!r}")
        self.op = op


def batch_isend_irecv(p2p_op_list: Sequence[P2POp]) -> list[Work]:
    """Begin messages; return what waits for each."""
    begun = [one.op(*one.arguments) for one in p2p_op_list]
    return [work for work in begun if work is not None]


def barrier(group: Group = None, async_op: bool = False, device_ids: Any = None) -> Work | None:  # noqa: ARG001, FBT001, FBT002 - as above
    """Wait until all ranks have called it."""
    if (made := joined(group)).rank < 0:
        return None
    return _begin(made, "barrier", made.counted("barrier").Ibarrier(), lambda: None, async_op)
