"""All-reduce of float32 over two cpu devices and two processes; captured steps with and without overlap.

Gloo of PyTorch and mpi4py reduce beside it. Each implementation runs in processes of its own; a round times
each once, so that load of the machine falls on all alike. Every element of a result is compared first. gloo
needs PyTorch, and what runs under mpirun the extra `hcq[mpi]`: what is not installed is left out, with a
message. `overlap` measures a captured training step over two devices, whose exchanges run beside the backward
pass or after it.

Not here: the algorithms (`frontend.distributed`). Next: `rows`, how a row is printed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from tools.bench.against import HERE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tools.bench.rows import Bench

    Started = tuple[Callable[[], object], str]

SIZES: Final = (1 << 10, 16 << 10, 256 << 10, 1 << 20, 8 << 20, 64 << 20)
"""Bytes of the tensor of each device or rank."""
OURS: Final = ("cpu x 2, captured", "cpu x 2", "hcq, mpirun -n 2")
PEERS: Final = ("mpi4py, mpirun -n 2", "gloo")
STEPS: Final = ("cpu x 2, exchanges beside kernels", "cpu x 2, exchanges after them", "cpu:0 alone")
WIDTHS: Final = (64, 512, 1024)
SETTINGS: Final = {
    "HCQ_CPU_DEVICES": "2", "MALLOC_MMAP_THRESHOLD_": "4294967296", "MALLOC_TRIM_THRESHOLD_": "-1",
}  # fmt: skip
"""The environment of the processes, which keep the memory that they free."""


def all_reduce(bench: Bench) -> None:
    """Measure each size with each implementation that is installed; a note has best peer's time / own."""
    with ExitStack() as undo:
        workers = _workers(undo)
        for size in SIZES[:1] if bench.quick else SIZES:
            taken: dict[str, list[float]] = {name: [] for name in workers}
            notes = dict.fromkeys(workers, "")
            for turn in range(3 if bench.quick else 16):
                for name, ranks in workers.items():
                    time_us, notes[name] = _timed(ranks, f"{(*OURS, *PEERS).index(name)} {size}")
                    taken[name] += [time_us] if turn else []  # the first round warms up
            best = min([median(taken[name]) for name in PEERS if name in taken], default=0.0)
            for name, times in taken.items():
                ratio = f"{best / median(times):.2f} of the best peer" if best and name in OURS else ""
                note = ", ".join(filter(None, (notes[name], ratio)))
                bench.add(f"{size >> 10} KiB, {name}", times, unit="us", note=note, device=name)


def overlap(bench: Bench) -> None:
    """Measure a step of SGD of 6 layers and 64 rows; notes have the host's time, and a median of ratios."""
    with ExitStack() as undo:
        worker = [_started(undo, (), "steps")]
        for width in WIDTHS[:1] if bench.quick else WIDTHS:
            taken: dict[str, list[float]] = {name: [] for name in STEPS}
            notes = dict.fromkeys(STEPS, "")
            for turn in range(3 if bench.quick else 12):
                for number, name in enumerate(STEPS):
                    time_us, notes[name] = _timed(worker, f"{number} {width}")
                    taken[name] += [time_us] if turn else []
            ratio = median([b / a for a, b in zip(taken[STEPS[0]], taken[STEPS[1]], strict=True)])
            notes[STEPS[0]] += f", {ratio:.2f} times as fast as after them"
            for name, times in taken.items():
                bench.add(f"width {width}, {name}", times, unit="us", note=notes[name], device=name)


def _timed(ranks: list[Any], command: str) -> tuple[float, str]:
    """Send a command to processes; return the microseconds and the note that the first one answers."""
    for rank in ranks:
        rank.stdin.write(f"{command}\n")
        rank.stdin.flush()
    answer = ranks[0].stdout.readline()
    if not answer:
        raise SystemExit(f"command {command!r}: the process ended; its error is above")
    time_us, _, note = answer.strip().partition(" ")
    return float(time_us), note


def _started(undo: ExitStack, words: Sequence[str], *given: str) -> Any:
    command = (*words, sys.executable, "-m", "tools.bench.collectives", *given)
    pipe, env = subprocess.PIPE, os.environ | SETTINGS
    made = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=env, cwd=HERE)
    undo.enter_context(made)
    undo.callback(made.terminate)
    return made


def _workers(undo: ExitStack) -> dict[str, list[Any]]:
    """Return the processes of each implementation, which take commands."""
    both = [_started(undo, (), "mesh")]
    found: dict[str, list[Any]] = {OURS[0]: both, OURS[1]: both}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    mpirun = shutil.which("mpirun", path=path)
    if mpirun and find_spec("mpi4py"):
        found[OURS[2]] = found[PEERS[0]] = [_started(undo, (mpirun, "-n", "2"), "mpi")]
    else:
        sys.stderr.write("no mpirun or no mpi4py, so nothing runs under it: pip install 'hcq[mpi]'\n")
    if not find_spec("torch"):
        sys.stderr.write("no PyTorch, so gloo is not measured: pip install torch\n")
        return found
    store = undo.enter_context(tempfile.TemporaryDirectory()) + "/store"
    found[PEERS[1]] = [_started(undo, (), "gloo", store, rank) for rank in ("0", "1")]
    return found


def _worker(kind: str, *given: str) -> None:
    """Answer lines "NUMBER BYTES", or "NUMBER WIDTH", with the microseconds of a call, and a note."""
    import numpy as np  # noqa: PLC0415 - not for the command

    made: dict[tuple[int, ...], Started] = {}
    kinds: dict[str, Any] = {"mesh": _mesh, "steps": _steps, "mpi": _mpi, "gloo": _gloo}
    line, start, leads = kinds[kind](*given)
    while key := line():
        if key not in made:
            made = {known: call for known, call in made.items() if known[1] == key[1]}
            rows = np.random.default_rng(0).integers(-99, 99, (2, key[1] // 4)).astype("float32")
            made[key] = start(key[0], rows)
        call, note = made[key]
        call()  # the ranks begin together
        times, begin = max(1, min(20, (1 << 20) // key[1])), time.perf_counter()
        for _ in range(times):
            call()
        if leads:
            print((time.perf_counter() - begin) / times * 1e6, note, flush=True)


def _typed() -> tuple[int, ...]:
    return tuple(map(int, sys.stdin.readline().split()))


def _check(rows: Any, *results: Any) -> None:
    if not all((got == rows.sum(0)).all() for got in results):
        raise SystemExit("a result of an all-reduce is wrong")


def _mesh() -> tuple[Any, ...]:
    from frontend import Device, Tensor, TinyJit  # noqa: PLC0415 - gloo's processes lack it
    from frontend.distributed import all_reduce_of, shards  # noqa: PLC0415 - as above

    devices = ("cpu:0", "cpu:1")
    mesh: Any = Device[",".join(devices)]

    def start(number: int, rows: Any) -> Started:
        x, before = Tensor(rows).shard(devices), mesh.transport.peer_bytes
        _check(rows, *[t.numpy() for t in shards(x.sum(0).realize())])
        note = f"moves {mesh.transport.peer_bytes - before:,} bytes, the fewest are {rows.nbytes:,}"
        reduced = TinyJit(lambda t: t.sum(0).realize())
        parts = [Tensor(row, device=d).realize() for row, d in zip(rows, devices, strict=True)]

        def call() -> None:
            reduced(x) if number == 0 else all_reduce_of(parts)
            mesh.synchronize()

        for _ in range(3):
            _check(rows, *[t.numpy() for t in (shards(reduced(x)) if number == 0 else all_reduce_of(parts))])
        return call, note

    return _typed, start, True


def _steps() -> tuple[Any, ...]:
    from frontend import Device, Tensor, TinyJit, nn, optim  # noqa: PLC0415 - as above
    from frontend.distributed.transport import QUEUED  # noqa: PLC0415 - as above

    mesh: Any = Device["cpu:0,cpu:1"]
    losses: dict[int, list[float]] = {}

    def start(number: int, rows: Any) -> Started:
        width = 4 * rows.shape[1]
        mesh.bucket_bytes = 1 << 60 if number else QUEUED
        Tensor.manual_seed(0)
        device = "cpu:0" if number == 2 else mesh.name
        net = nn.Sequential(*[m for _ in range(6) for m in (nn.Linear(width, width), nn.Tanh())]).to(device)
        x, sgd = Tensor.randn(64, width), optim.SGD(net.parameters(), lr=1e-3)
        x = x.to(device) if number == 2 else x.shard(mesh.name)

        @TinyJit
        def step(x: Any) -> Any:
            loss = net(x).square().mean()
            sgd.zero_grad()
            loss.backward()
            sgd.step()
            return loss.detach()

        def call() -> float:
            begin = time.perf_counter()
            step(x)
            end = time.perf_counter()
            mesh.synchronize()
            return end - begin

        with Tensor.train():
            found = [step(x).item() for _ in range(5)]
            if number < 2 and losses.setdefault(width, found) != found:
                raise SystemExit("losses of a step differ")
            return call, f"host {median([call() for _ in range(50)]) * 1e6:.0f} us"

    return _typed, start, True


def _mpi() -> tuple[Any, ...]:
    import numpy as np  # noqa: PLC0415 - as above

    import frontend.distributed as dist  # noqa: PLC0415 - as above
    from frontend import Tensor  # noqa: PLC0415 - as above

    dist.init_process_group()
    mpi: Any = import_module("mpi4py.MPI")
    world = mpi.COMM_WORLD
    rank = world.Get_rank()

    def line() -> tuple[int, ...]:
        words = np.array((_typed() if rank == 0 else ()) or (0, 0))
        request = world.Ibcast(words, 0)
        while not request.Test():
            time.sleep(1e-3)  # a rank that waits for a command leaves its core to the others
        return tuple(words.tolist()) if words[1] else ()

    def start(number: int, rows: Any) -> Started:
        data, t = rows[rank].copy(), Tensor(rows[rank])
        dist.all_reduce(t)
        world.Allreduce(mpi.IN_PLACE, data)
        _check(rows, data, t.numpy())
        data[:] = 0  # else sums of sums
        zero = Tensor(data)
        return (lambda: dist.all_reduce(zero) if number == 2 else world.Allreduce(mpi.IN_PLACE, data)), ""

    return line, start, rank == 0


def _gloo(store: str, rank: str) -> tuple[Any, ...]:
    import torch  # noqa: PLC0415 - a peer
    import torch.distributed as dist  # noqa: PLC0415 - a peer

    torch.set_num_threads(1)  # the other core is the other rank's
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=int(rank), world_size=2)

    def start(_number: int, rows: Any) -> Started:
        data = torch.from_numpy(rows[int(rank)].copy())
        dist.all_reduce(data)
        _check(rows, data.numpy())
        data.zero_()  # else sums of sums
        return (lambda: dist.all_reduce(data)), ""

    return _typed, start, rank == "0"


CASES = {"all-reduce": all_reduce, "overlap": overlap}

if __name__ == "__main__":
    _worker(*sys.argv[1:])
