"""Groups of processes under the names of `torch.distributed`, over MPI: one process a rank, on any machines.

`mpirun -n 4 python train.py` starts the ranks; MPI, through the package mpi4py, carries the bytes (the extra
`hcq[mpi]`). Every collective is called by all ranks of its group in the same order.

A collective that does not complete within the group's time limit raises `ProcessGroupError`, which names the
ranks that have not called it, and those that have ended. So does a rank of the same machine that called
another, or with another size or dtype. An exception that ends the program of one rank ends those of all
others. Arguments of other classes raise `UsageTypeError`.

    import frontend.distributed as dist

    dist.init_process_group()
    dist.all_reduce(x)                     # x: the sum over all ranks
    dist.destroy_process_group()

Not here: devices of one process (`mesh`), models (`frontend.nn.parallel`). Next: `collectives`.
"""

from __future__ import annotations

import atexit
import os
import sys
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from importlib import import_module
from typing import Any, Final

import numpy as np

from frontend.arguments.checks import whole
from hcq.errors import HcqError, UnsupportedError, UsageError, UsageTypeError

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
_HEAD: Final = 16
"""Bytes of the two numbers above, before the records of the last calls."""
_RECORD: Final = 96
_RECORDS: Final = 64


class ProcessGroupError(HcqError):
    """A collective ended without a result: a rank is gone, called another, or none within the time limit.

    `ranks` are the ranks at fault, as far as they are known.
    """

    def __init__(self, text: str, ranks: Sequence[int] = ()) -> None:
        super().__init__(text)
        self.ranks = tuple(ranks)


class Work:
    """A collective in progress, which `async_op=True` returns."""

    def __init__(self, group: ProcessGroup, request: Any, name: str, finish: Callable[[], Any]) -> None:
        self._group, self._request, self._name, self._finish = group, request, name, finish
        self._number = group.calls if name not in {"send", "recv"} else 0  # those are not counted
        self._status = group.mpi.Status()
        self._done = False

    def is_completed(self) -> bool:
        """Return whether `wait` would return at once."""
        return self._done or bool(self._request.Get_status())  # `Test` would forget what was received

    def wait(self, timeout: float | timedelta | None = None) -> bool:
        """Wait until the tensor has its new value; return True.

        `timeout`, in seconds or as a `timedelta`, stands for the limit of the group. Raises
        `ProcessGroupError`, and `UsageError` for a message of another size.
        """
        if not self._done:
            limit = self._group.timeout_s if timeout is None else seconds_of(timeout)
            self._group.until(self._request, self._name, self._number, self._status, limit)
            self._done = True
            self._finish()
        return True

    @property
    def received(self) -> tuple[int, int]:
        """(Rank in the group that sent a message, bytes) of a receive that is complete."""
        return self._status.Get_source(), self._status.Get_count(self._group.mpi.BYTE)


def seconds_of(timeout: float | timedelta) -> float:
    """Return a limit in seconds."""
    return timeout.total_seconds() if isinstance(timeout, timedelta) else float(timeout)


class ProcessGroup:
    """Processes that `mpirun` started: all of them, made by `init_process_group`, or those of `new_group`.

    A process outside of a group has one of rank -1 and size -1, without a communicator.
    """

    def __init__(
        self, mpi: Any, timeout_s: float, communicator: Any, ranks: Sequence[int],
        every: ProcessGroup | None = None,
    ) -> None:  # fmt: skip
        self.mpi, self.timeout_s = mpi, timeout_s
        self.world, self.ranks = communicator, tuple(ranks)
        """MPI's communicator, and for each rank of it the rank among all processes."""
        self.rank = self.size = -1
        self.calls = 0
        """Number of collectives that this rank has called."""
        self._every = every or self
        if communicator is None:
            return
        self.rank, self.size = self.world.Get_rank(), self.world.Get_size()
        node = self.world.Split_type(mpi.COMM_TYPE_SHARED)
        self._record_bytes = _RECORD + 16 * self.size
        window = mpi.Win.Allocate_shared(_HEAD + self._record_bytes * _RECORDS, 8, comm=node)
        ranks = self.world.group.Translate_ranks(None, node.group)
        near = {r: n for r, n in enumerate(ranks) if n != mpi.UNDEFINED}
        self._memory = {r: window.Shared_query(n)[0] for r, n in near.items()}
        self.near = {r: np.frombuffer(memory, "u8", 2) for r, memory in self._memory.items()}
        """Rank on this machine -> (number of its process, number of its calls), in memory that all share.

        Numbers of processes are those of the group of all.
        """
        self._held = node, window
        self.near[self.rank][:] = os.getpid(), 0
        self.world.Barrier()

    def rank_of(self, number: int | None, what: str, own: int | None = None) -> int:
        """Return the rank in this group of one among all processes, or `own`, which is one of this group.

        Raises `UsageError` for no such rank, and unless one of both is given.
        """
        if (number is None) == (own is None):
            raise UsageError(f"{what}: wanted a rank or that of the group, saw {number} and {own}")
        if own is not None:
            if not 0 <= whole(own, what) < self.size:
                raise UsageError(f"{what}: wanted a rank of 0 to {self.size - 1} in the group, saw {own}")
            return own
        if whole(number, what) not in self.ranks:
            raise UsageError(f"{what}: wanted a rank of {_listed(self.ranks)}, saw {number}")
        return self.ranks.index(number)

    def counted(self, call: str, sizes: Sequence[Sequence[int]] = ()) -> Any:
        """Count a call of this rank, record what must be equal on all ranks; return the communicator.

        `sizes` are the bytes that this rank sends to each rank, and those that it receives from each.
        """
        self.calls += 1
        own, at = self._memory[self.rank], self._record(self.calls)
        own[at : at + 8] = bytes(8)  # no number, while the text changes
        own[at + 8 : at + _RECORD] = call.encode()[: _RECORD - 8].ljust(_RECORD - 8)
        table = np.array(sizes or [[0] * self.size] * 2, "u8").tobytes()
        own[at + _RECORD : at + self._record_bytes] = table
        own[at : at + 8] = self.calls.to_bytes(8, sys.byteorder)
        self.near[self.rank][_CALLS] = self.calls
        return self.world

    def _record(self, number: int) -> int:
        return _HEAD + number % _RECORDS * self._record_bytes

    def _between(self, record: bytes, rank: int) -> tuple[str, int, int]:
        """Return the call of a record, and the bytes that its rank sends to another one and receives."""
        sent, received = np.frombuffer(record, "u8", 2 * self.size, _RECORD).reshape(2, -1)[:, rank].tolist()
        return record[8:_RECORD].decode(errors="replace").strip(), sent, received

    def _compare(self, number: int) -> None:
        """Raise `ProcessGroupError` if a rank of this machine made another call of this number."""
        at, start = self._record(number), number.to_bytes(8, sys.byteorder)
        found = {r: bytes(memory[at : at + self._record_bytes]) for r, memory in self._memory.items()}
        calls: dict[int, tuple[tuple[str, int, int], tuple[str, int, int]]] = {}
        for r, one in found.items() if number else ():
            if one[:8] == found[self.rank][:8] == start:
                pair = self._between(found[self.rank], r), self._between(one, self.rank)
                if pair[0] != (pair[1][0], pair[1][2], pair[1][1]):
                    calls[r] = pair
        others = list(calls)
        if others and bytes(self._memory[others[0]][at : at + 8]) == start:
            mine, theirs = (
                text + (f" with {sent} bytes to the other and {received} from it" if sent or received else "")
                for text, sent, received in calls[others[0]]
            )
            raise ProcessGroupError(
                f"collective {number} of rank {self._every.rank} of {self._every.size}: this rank called "
                f"{mine}, {self._named(others[:1])} {theirs}\nhint: all ranks of a group make the same calls "
                "in the same order, with tensors of one size and dtype",
                [self.ranks[r] for r in others],
            )

    def _complete(self, request: Any, name: str, number: int, status: Any) -> bool:
        try:
            return bool(request.Test(status))
        except self.mpi.Exception as error:
            self._compare(number)
            raise ProcessGroupError(f"{name}, collective {number}: MPI failed: {error}") from None

    def until(self, request: Any, name: str, number: int, status: Any = None, limit_s: float = 0.0) -> None:
        """Wait for a request of MPI. A limit of 0 is that of the group.

        Raises `ProcessGroupError` after the limit, when a rank ended, and when one made another call.
        """
        start = look = time.monotonic()
        while not self._complete(request, name, number, status):
            now = time.monotonic()
            if now - start > _SPIN_S:
                time.sleep(min(1e-3, (now - start) / 10))
            if now - look > _LOOK_S:
                look = now
                self._compare(number)
                self._check(name, number, now - start, limit_s or self.timeout_s)
        self._compare(number)

    def _check(self, name: str, number: int, waited_s: float, limit_s: float) -> None:
        pids = {r: int(self._every.near[self.ranks[r]][_PID]) for r in self.near}
        ended = [r for r, pid in pids.items() if not _alive(pid)]
        gone = [r for r in ended if pids[r] != _LEFT] or ended
        what = f"{name}, collective {number}" if number else name
        what += f" of rank {self._every.rank} of {self._every.size}"
        if gone:
            called = all(int(self.near[r][_CALLS]) >= number for r in gone)
            when = "before it was complete" if called else "without calling it"
            raise ProcessGroupError(
                f"{what}: {self._named(gone)} ended {when}\n"
                "hint: its own error is above, or the system ended it (memory?)",
                [self.ranks[r] for r in gone],
            )
        if waited_s > limit_s:
            late = [r for r, seen in self.near.items() if int(seen[_CALLS]) < number]
            seen = (
                f"{self._named(late)} did not call it"
                if late
                else f"{'a rank on another machine' if number else 'the other rank'} did not call it"
            )
            raise ProcessGroupError(
                f"{what}: not complete after {waited_s:.1f} s; {seen}\n"
                "hint: all ranks must make the same calls; init_process_group(timeout=...) sets the limit",
                [self.ranks[r] for r in late],
            )

    def _named(self, numbers: Sequence[int]) -> str:
        return f"rank{'s' if len(numbers) > 1 else ''} {_listed([self.ranks[r] for r in numbers])}"

    def leave(self, error: BaseException) -> None:
        """Count as ended by an error; give the ranks of this machine that wait for this one time to raise."""
        self.near[self.rank][_PID] = _LEFT if isinstance(error, ProcessGroupError) else 0
        end = time.monotonic() + _LEAVE_S
        while any(_alive(int(seen[_PID])) for seen in self.near.values()) and time.monotonic() < end:
            time.sleep(_LOOK_S / 10)


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


def _alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:  # noqa: PTH123 - often
            return file.read().rpartition(")")[2].split()[0] not in {"Z", "X"}
    except OSError:
        return False


_group: list[ProcessGroup] = []


def joined(given: ProcessGroup | None = None) -> ProcessGroup:
    """Return a process group, None for that of all processes.

    Raises `UsageError` before `init_process_group`, `UsageTypeError` for anything else.
    """
    if given is not None and not isinstance(given, ProcessGroup):
        raise UsageTypeError(f"group: wanted a group of new_group, or None for all processes, saw {given!r}")
    if not _group:
        raise UsageError(
            "there is no process group\nhint: call frontend.distributed.init_process_group() first"
        )
    return given or _group[0]


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
    every = mpi.COMM_WORLD.Dup()
    limit = TIMEOUT_S if timeout is None else seconds_of(timeout)
    made = ProcessGroup(mpi, limit, every, range(every.Get_size()))
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


def new_group(
    ranks: Sequence[int] | None = None, timeout: float | timedelta | None = None, backend: str | None = None
) -> ProcessGroup:
    """Return a group of some of the processes, by their ranks, in rising order; None: of all of them.

    All processes call it, with the same ranks. A process that is not in it gets one of rank -1, of which its
    collectives return at once. `timeout` is as for `init_process_group`, by default that of all processes.
    Raises `UsageError` for ranks that do not exist or occur twice, `ProcessGroupError`.
    """
    every = joined()
    if backend is not None and backend not in _BACKENDS:
        raise UsageError(f"backend: wanted 'mpi', saw {backend!r}")
    numbers = sorted(range(every.size) if ranks is None else [every.rank_of(r, "new_group") for r in ranks])
    if not numbers or len(set(numbers)) < len(numbers):
        raise UsageError(f"new_group, ranks: wanted some ranks, each once, saw {numbers}")
    request = every.counted(f"new_group of {len(numbers)} ranks: {_listed(numbers)}").Ibarrier()
    every.until(request, "new_group", every.calls)
    inside = every.rank in numbers
    made = every.world.Split(0 if inside else every.mpi.UNDEFINED, every.rank)
    limit = every.timeout_s if timeout is None else seconds_of(timeout)
    return ProcessGroup(every.mpi, limit, made if inside else None, numbers, every)


def destroy_process_group(group: ProcessGroup | None = None) -> None:
    """Leave the group of all processes, which all call; another one is left to the garbage collector.

    Nothing happens without one. Raises `ProcessGroupError`.
    """
    if _group and group in {None, _group[0]}:
        every = _group[0]
        every.until(every.counted("destroy_process_group").Ibarrier(), "destroy_process_group", every.calls)
        _group.clear()


def get_rank(group: ProcessGroup | None = None) -> int:
    """Return the number of this process in a group, from 0; -1 outside of it, or without one."""
    return (group or _group[0]).rank if _group else -1


def get_world_size(group: ProcessGroup | None = None) -> int:
    """Return how many processes a group has; -1 outside of it, or without one."""
    return (group or _group[0]).size if _group else -1


def get_process_group_ranks(group: ProcessGroup | None = None) -> list[int]:
    """Return the ranks among all processes of those in a group. Raises `UsageError` without one."""
    return list(joined(group).ranks)


def get_global_rank(group: ProcessGroup, group_rank: int) -> int:
    """Return the rank among all processes. Raises `UsageError` for no such rank in the group."""
    return group.ranks[group.rank_of(None, "get_global_rank", group_rank)]


def get_group_rank(group: ProcessGroup, global_rank: int) -> int:
    """Return the rank in a group. Raises `UsageError` for a process that is not in it."""
    return group.rank_of(global_rank, "get_group_rank")


def get_backend(group: ProcessGroup | None = None) -> str:  # noqa: ARG001 - the field's signature
    """Return "mpi"."""
    return "mpi"
