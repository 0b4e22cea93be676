"""A program of several ranks under PyTorch's names; `tests.frontend.test_processes` compares with PyTorch.

`python tests/frontend/ranks_of_pytorch.py torch 3` runs it with PyTorch's gloo, and prints what the data file
`ranks_of_pytorch.json` has. `mpirun -n 3 python tests/frontend/ranks_of_pytorch.py` runs it with `frontend`.
"""

from __future__ import annotations

import json
import sys
from typing import Any

CASES: dict[str, Any] = {}


def case(fn: Any) -> Any:
    """Keep a function of (torch, its module of processes, rank, number of ranks) as a case."""
    CASES[fn.__name__] = fn
    return fn


def seen(value: Any) -> Any:
    """Return tensors as lists, and floats with 14 digits."""
    if isinstance(value, (list, tuple)):
        return [seen(x) for x in value]
    if isinstance(value, float):
        return float(f"{value:.14g}")
    return seen(value.tolist()) if hasattr(value, "tolist") else value


def refused(fn: Any) -> str:
    """Return whether a call is refused, by any error."""
    try:
        fn()
    except Exception:  # noqa: BLE001 - PyTorch has other classes
        return "refused"
    return "taken"


@case
def reductions(torch: Any, dist: Any, rank: int, size: int) -> Any:
    found = []
    for op in ("SUM", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR"):
        for dtype in (torch.int32, torch.int64, torch.uint8, torch.float32, torch.float64):
            if op[0] != "B" or not dtype.is_floating_point:
                t = torch.arange(5).to(dtype) + rank + 1
                dist.all_reduce(t, getattr(dist.ReduceOp, op))
                found.append(t)
    return found


@case
def reductions_to_one(torch: Any, dist: Any, rank: int, size: int) -> Any:
    t, u = torch.arange(3.0) + rank, torch.arange(3) * (rank + 1)
    dist.reduce(t, size - 1)
    dist.reduce(u, dst=0, op=dist.ReduceOp.MAX)
    return [t if rank == size - 1 else None, u if rank == 0 else None]


@case
def places_of_arguments(torch: Any, dist: Any, rank: int, size: int) -> Any:
    t = torch.ones(2) * (rank + 1)
    dist.all_reduce(tensor=t, op=dist.ReduceOp.SUM, group=None, async_op=False)
    u = torch.full((2,), float(rank))
    dist.broadcast(u, 1, None, False)
    v = torch.zeros(2)
    work = dist.all_reduce(v.add_(rank), dist.ReduceOp.MAX, None, True)
    work.wait()
    return [t, u, v, work.is_completed()]


@case
def views(torch: Any, dist: Any, rank: int, size: int) -> Any:
    t = torch.arange(6.0).reshape(2, 3) + rank
    dist.all_reduce(t[1])
    u = torch.arange(6.0).reshape(3, 2) * (rank + 1)
    dist.broadcast(u[0], src=size - 1)
    rows = torch.zeros(size, 2)
    dist.all_gather(list(rows.unbind(0)), torch.full((2,), rank + 1.0))
    return [t, u, rows]


@case
def gathers(torch: Any, dist: Any, rank: int, size: int) -> Any:
    t = torch.arange(4).reshape(2, 2) + 10 * rank
    every = [torch.zeros(2, 2, dtype=torch.int64) for _ in range(size)]
    work = dist.all_gather(every, t, async_op=True)
    work.wait()
    long = torch.zeros(2 * size, 2, dtype=torch.int64)
    dist.all_gather_into_tensor(long, t)
    mine = [torch.zeros(2, 2, dtype=torch.int64) for _ in range(size)] if rank == 1 else None
    dist.gather(t, mine, dst=1)
    return [every, long, mine]


@case
def scatters(torch: Any, dist: Any, rank: int, size: int) -> Any:
    t, u = torch.zeros(2), torch.zeros(2)
    dist.scatter(t, [torch.full((2,), float(i)) for i in range(size)] if rank == 0 else None, src=0)
    dist.reduce_scatter(u, [torch.arange(2.0) + 10 * i + rank for i in range(size)])
    v = torch.zeros(3)
    dist.reduce_scatter_tensor(v, torch.arange(3.0 * size) * (rank + 1), dist.ReduceOp.MAX)
    return [t, u, v]


@case
def exchanges(torch: Any, dist: Any, rank: int, size: int) -> Any:
    t = torch.zeros(2 * size)
    dist.all_to_all_single(t, torch.arange(2.0 * size) + 100 * rank)
    given = [i + 1 for i in range(size)]
    u = torch.zeros((rank + 1) * size, 2)
    dist.all_to_all_single(u, torch.ones(sum(given), 2) * rank, [rank + 1] * size, given)
    return [t, u]


@case
def messages(torch: Any, dist: Any, rank: int, size: int) -> Any:
    t, u = torch.full((3,), float(rank)), torch.zeros(3)
    to, of = (rank + 1) % size, (rank - 1) % size
    works = dist.batch_isend_irecv([dist.P2POp(dist.isend, t, to), dist.P2POp(dist.irecv, u, of)])
    while not all(work.is_completed() for work in works):
        pass
    for work in works:
        work.wait()
    v = torch.zeros(1)
    if rank == 0:
        dist.send(torch.tensor([4.5]), 1, None, 7)
        return [u, dist.recv(v, size - 1), v]
    if rank == 1:
        found = dist.recv(v, src=0, tag=7)
    if rank == size - 1:
        dist.isend(torch.tensor([2.5]), dst=0).wait()
    return [u, v, 0 if rank != 1 else found]


@case
def objects(torch: Any, dist: Any, rank: int, size: int) -> Any:
    every: list[Any] = [None] * size
    dist.all_gather_object(every, {"rank": rank, "text": "x" * rank})
    mine: list[Any] = [rank, str(rank), [rank] * 3]
    dist.broadcast_object_list(mine, src=1)
    pickled = [7] if rank == 0 else [lambda: None]
    dist.broadcast_object_list(pickled)
    one: list[Any] = [None]
    dist.scatter_object_list(one, [{"to": i} for i in range(size)] if rank == 0 else None, src=0)
    gathered: list[Any] = [None] * size
    dist.gather_object((rank, "a"), gathered if rank == 0 else None, dst=0)
    return [every, mine, pickled, one, gathered if rank == 0 else None]


@case
def groups(torch: Any, dist: Any, rank: int, size: int) -> Any:
    first, last = dist.new_group([0, 1]), dist.new_group(ranks=[size - 1, 0])
    found = []
    for group in (first, last):
        t = torch.ones(2) * (rank + 1)
        dist.all_reduce(t, group=group)
        found += [t, dist.get_rank(group), dist.get_world_size(group)]
    if dist.get_rank(last) >= 0:
        u = torch.full((1,), float(rank))
        dist.broadcast(u, src=size - 1, group=last)
        w = torch.full((1,), float(rank))
        dist.broadcast(w, group=last, group_src=0)
        found += [u, w, dist.get_process_group_ranks(last), dist.get_global_rank(last, 1)]
        found += [dist.get_group_rank(last, size - 1)]
        every = [torch.zeros(1) for _ in range(2)]
        dist.all_gather(every, torch.full((1,), float(rank)), group=last)
        dist.barrier(last)
        found += [every]
    return found


def refusals(torch: Any, dist: Any, size: int) -> list[str]:
    """Return what became of wrong calls, of which some never end with gloo."""
    t = torch.zeros(3)
    calls = [
        lambda: dist.all_gather([torch.zeros(3)] * (size + 1), t),
        lambda: dist.all_gather([torch.zeros(3, dtype=torch.int32)] * size, t),
        lambda: dist.reduce_scatter_tensor(torch.zeros(2), torch.zeros(2 * size + 1)),
        lambda: dist.all_gather_into_tensor(torch.zeros(2 * size), t),
        lambda: dist.all_gather_into_tensor(torch.zeros(3 * size, dtype=torch.int32), t),
        lambda: dist.all_to_all_single(torch.zeros(size + 1), torch.zeros(size + 1)),
        lambda: dist.broadcast(t, size),
        lambda: dist.all_reduce([1.0]),
        lambda: dist.all_reduce(t, dist.ReduceOp.BAND),
        lambda: dist.broadcast(t),
    ]
    return [refused(call) for call in calls]


def network(torch: Any) -> Any:
    """Return a network with a batch norm and a branch that no rank uses."""
    nn = torch.nn

    class Net(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.a, self.norm, self.b = nn.Linear(3, 4, bias=False), nn.BatchNorm1d(4), nn.Linear(4, 2)
            self.spare, self.some = nn.Linear(4, 2), nn.Linear(4, 2)

        def forward(self, x: Any, some: bool = False, every: bool = False) -> Any:  # noqa: FBT001, FBT002
            h = self.norm(self.a(x)).tanh()
            y = self.b(h)
            if some or every:
                y = y + self.some(h)
            return y + self.spare(h) if every else y

    net = Net().double()
    with torch.no_grad():
        for k, p in enumerate(net.parameters()):
            p.copy_((torch.arange(p.numel()).reshape(p.shape).double() * 0.37 + k).sin())
    return net


def trained(torch: Any, dist: Any, rank: int, size: int, how: str) -> Any:
    net = network(torch)
    with torch.no_grad():
        net.norm.running_mean.add_(float(rank))
    options = {"find_unused_parameters": how == "unused", "broadcast_buffers": how != "own buffers"}
    model = torch.nn.parallel.DistributedDataParallel(net, **options)
    adam = torch.optim.AdamW(net.parameters(), lr=1e-2, weight_decay=0.1)
    held: Any = None
    for step in range(6):
        x = (torch.arange(18).reshape(6, 3).double() * (step + 1) * 0.21 + rank).cos()
        kept = how == "no_sync" and step % 3
        some = {"unused": {"some": rank == step % size}}.get(how, {"every": True})
        if kept:
            with model.no_sync():
                model(x, **some).square().mean().backward()
            continue
        model(x, **some).square().mean().backward()
        if step == 0:
            held = net.a.weight.grad
        if how == "clipped":
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)
        adam.step()
        adam.zero_grad(set_to_none=how != "unused")
    state = model.state_dict()
    same_held = how != "unused" or net.a.weight.grad is held
    kinds = [None if p.grad is None else p.grad.abs().sum().item() for p in net.spare.parameters()]
    return [[k, v] for k, v in state.items()], kinds, same_held


for _how in ("plain", "unused", "no_sync", "clipped", "own buffers"):
    CASES[f"trained {_how}"] = lambda *given, how=_how: trained(*given, how)


@case
def samples(torch: Any, dist: Any, rank: int, size: int) -> Any:
    sampler = torch.utils.data.distributed.DistributedSampler
    found = []
    for total in (1, 2, 7, 12, 41):
        for options in ({}, {"seed": 5}, {"drop_last": True}, {"shuffle": False}, {"seed": 1 << 33}):
            one = sampler(list(range(total)), **options)
            found.append([len(one), list(one)])
            one.set_epoch(3)
            found.append(list(one))
    return found


def answers(torch: Any, dist: Any) -> dict[str, Any]:
    """Return the results of all ranks, by case."""
    rank, size = dist.get_rank(), dist.get_world_size()
    found = {}
    for name, fn in CASES.items():
        every: list[Any] = [None] * size
        dist.all_gather_object(every, seen(fn(torch, dist, rank, size)))
        found[name] = every
    return found


def with_torch(rank: int, size: int, folder: str) -> None:
    """Be a rank of PyTorch's gloo, and print the results."""
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=size)
    found = answers(torch, dist)
    if rank == 0:
        sys.stdout.write(json.dumps(found) + "\n")
    dist.barrier()
    dist.destroy_process_group()


def main() -> None:
    """Run with PyTorch, or as a rank of mpirun."""
    if sys.argv[1:2] == ["torch"]:
        import tempfile

        import torch.multiprocessing as processes

        size = int(sys.argv[2])
        with tempfile.TemporaryDirectory() as folder:
            processes.spawn(with_torch, (size, folder), size)
        return
    import frontend as torch
    import frontend.distributed as dist
    import frontend.nn.parallel
    import frontend.utils.data.distributed

    dist.init_process_group(timeout=20)
    found = answers(torch, dist)
    assert set(refusals(torch, dist, dist.get_world_size())) == {"refused"}
    if dist.get_rank() == 0:
        sys.stdout.write(json.dumps(found) + "\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
