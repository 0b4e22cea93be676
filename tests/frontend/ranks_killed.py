"""Training by several ranks, one of which is killed at a moment; `tests.frontend.test_processes` starts it.

Its arguments are a folder, the moment and the rank. A moment is the n-th time that the rank calls a
collective, or begins to wait for one; 0 is none. It continues from the checkpoint in the folder, where each
rank also writes its errors.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import frontend.distributed as dist
from frontend import Tensor, nn, optim
from frontend.distributed.ranks import processes
from frontend.nn import functional, state

if TYPE_CHECKING:
    from collections.abc import Callable

STEPS = 4


def main() -> None:
    """Train, with a checkpoint after each step; rank 0 saves the parameters in the end."""
    folder, moment, victim = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    processes._LEAVE_S = 300.0  # no rank is ended before it has written its error
    dist.init_process_group(timeout=300)
    rank, size, seen = dist.get_rank(), dist.get_world_size(), 0
    sys.stderr = (folder / f"rank {rank}").open("w", encoding="utf-8")

    def counted(fn: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            nonlocal seen
            seen += 1
            if rank == victim and seen == moment:
                os.kill(os.getpid(), signal.SIGKILL)
            return fn(*args)

        return call

    group: Any = processes.joined()
    group.counted, group.until = counted(group.counted), counted(group.until)
    Tensor.manual_seed(7)
    net = nn.Sequential(nn.Linear(12, 9), nn.Tanh(), nn.Linear(9, 5)).double()
    adam = optim.Adam(net.parameters(), lr=1e-2)
    saved = {"net": net, "adam": adam}
    done, file = 0, folder / "checkpoint"
    if file.exists():
        found = state.safe_load(file)
        done = int(found.pop("done").item())
        for kind, what in saved.items():
            own = {k.removeprefix(f"{kind}."): t for k, t in found.items() if k.startswith(f"{kind}.")}
            state.load_state_dict(what, own)
    model = dist.DistributedDataParallel(net, bucket_cap_mb=0.0005)
    x = np.random.default_rng(0).standard_normal((STEPS, 12, 12))
    for i in range(done, STEPS):
        loss = functional.cross_entropy(
            model(Tensor(x[i, rank::size])), Tensor(np.arange(12)[rank::size] % 5)
        )
        adam.zero_grad()
        loss.backward()
        adam.step()
        if rank == 0:
            kept = {
                f"{kind}.{k}": t
                for kind, what in saved.items()
                for k, t in state.get_state_dict(what).items()
            }
            state.safe_save({**kept, "done": Tensor([i + 1])}, folder / "next")
            (folder / "next").replace(file)
        dist.barrier()
    dist.destroy_process_group()
    sys.stderr.write(f"done after {seen} moments\n")


if __name__ == "__main__":
    main()
