"""A program of several ranks, which `tests.frontend.test_processes` starts with mpirun.

Its first argument is what the last rank does in the end: "" to leave with the others, or a fault.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

import numpy as np
import pytest

import frontend.distributed as dist
from frontend import Tensor, nn, optim
from frontend.distributed.ranks import processes
from frontend.nn import functional
from hcq.errors import UsageError

DTYPES = ("bool", "int8", "uint8", "int32", "int64", "float16", "bfloat16", "float32", "float64")
RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((64, 12)), np.arange(64) % 5


def trained(rank: int, size: int, *, parallel: bool) -> list[np.ndarray[Any, Any]]:
    """Return the parameters after 20 steps with this rank's samples; the ranks begin with different ones."""
    Tensor.manual_seed(7 + rank)
    net = nn.Sequential(nn.Linear(12, 9), nn.Tanh(), nn.Linear(9, 5)).double()
    model = dist.DistributedDataParallel(net, bucket_cap_mb=0.0005) if parallel else net
    adam = optim.Adam(net.parameters(), lr=1e-2)
    for i in range(20):
        rows = slice(i % 4 * 16 + rank, i % 4 * 16 + 16, size)
        loss = functional.cross_entropy(model(Tensor(X[rows])), Tensor(Y[rows]))
        adam.zero_grad()
        loss.backward()
        adam.step()
    return [p.numpy() for p in net.parameters()]


def collectives(rank: int, size: int) -> None:
    """Compare every collective with NumPy."""
    for dtype in DTYPES:
        for n in (0, 1, 5, 1000):
            parts = [
                (np.arange(n) % 3 + r if dtype != "bool" else np.arange(n) % (r + 2) == 0)
                for r in range(size)
            ]
            given = [Tensor(p).cast(dtype) for p in parts]
            for op, of in (("SUM", np.add), ("MAX", np.maximum), ("MIN", np.minimum)):
                x, want = given[rank].clone(), of.reduce(parts).astype(parts[0].dtype)
                dist.all_reduce(x, dist.ReduceOp[op])
                np.testing.assert_array_equal(x.float().numpy(), want.astype("float32"))
            gathered = [Tensor.zeros(n).cast(dtype) for _ in range(size)]
            dist.all_gather(gathered, given[rank])
            for t, p in zip(gathered, parts, strict=True):
                np.testing.assert_array_equal(t.float().numpy(), p.astype("float32"))
            y = given[rank].clone()
            dist.broadcast(y, size - 1)
            np.testing.assert_array_equal(y.float().numpy(), parts[-1].astype("float32"))
    mean = Tensor([float(rank)])
    work = dist.all_reduce(mean, dist.ReduceOp.AVG, async_op=True)
    assert work is not None
    work.wait()
    assert mean.item() == (size - 1) / 2
    row, mine = Tensor(np.arange(size * 2.0) + 100 * rank), Tensor(np.zeros(2))
    dist.reduce_scatter_tensor(mine, row)
    assert mine.tolist() == [size * (2.0 * rank + i) + 50 * size * (size - 1) for i in (0, 1)]


def unused(rank: int) -> None:
    """Expect an error on all ranks where one does not use a parameter, or has another module."""
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model = dist.DistributedDataParallel(net)
    loss = net[0](Tensor.ones(1, 2)).sum() if rank else model(Tensor.ones(1, 2)).sum()
    for call, text in (
        (loss.backward, "no gradient of 1.weight, 1.bias"),
        (lambda: dist.DistributedDataParallel(nn.Linear(2, 2 + rank)), "rank 1 has a module with"),
    ):
        with pytest.raises(UsageError, match=text):
            call()


def differing(rank: int) -> None:
    """Expect an error on all ranks, and no numbers, where they give other sizes, dtypes or operations."""
    op, t = (dist.ReduceOp.MAX if rank else dist.ReduceOp.SUM), Tensor.ones(4 + rank)
    size = dist.get_world_size()
    given = [1 if r == rank else size + 1 for r in range(size)]
    for call in (
        lambda: dist.all_reduce(t),
        lambda: dist.all_reduce(t[:4].cast("float64" if rank else "int64")),
        lambda: dist.all_reduce(t[:4], op, async_op=True).wait(),
        lambda: dist.all_gather([t.clone() for _ in range(size)], t),
        lambda: dist.all_to_all([t.clone() for _ in range(size)], [t] * size),
        lambda: dist.all_to_all_single(Tensor.zeros(size), Tensor.ones(sum(given)), [1] * size, given),
    ):
        with pytest.raises(processes.ProcessGroupError, match=r"this rank called all_.*, rank \d all_"):
            call()


def main() -> None:
    """Compare training and collectives with one process; then commit the fault."""
    want = trained(0, 1, parallel=False)
    dist.init_process_group("gloo", timeout=4)
    rank, size = dist.get_rank(), dist.get_world_size()
    for got, p in zip(trained(rank, size, parallel=True), want, strict=True):
        np.testing.assert_allclose(got, p, rtol=1e-10, atol=1e-10)
    collectives(rank, size)
    unused(rank)
    differing(rank)
    dist.barrier()
    if rank == size - 1:
        match sys.argv[1]:
            case "raise":
                processes._LEAVE_S = 300.0  # until the others have raised their own
                raise ValueError("the last rank's own error")
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "hang":
                time.sleep(600)
    dist.all_reduce(Tensor.zeros(3))
    dist.destroy_process_group()
    sys.stdout.write(f"rank {rank} of {size} is done\n")


if __name__ == "__main__":
    main()
