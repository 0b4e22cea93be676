"""Data-parallel training by several processes, under PyTorch's names.

Each rank has the whole model, and its own part of each batch. After `backward` the gradients of all ranks are
averaged, so that every rank makes the same step.

    sampler = DistributedSampler(data)
    model = DistributedDataParallel(model)
    for x, y in DataLoader(data, batch_size=32, sampler=sampler):
        functional.cross_entropy(model(x), y).backward()
        optimiser.step()

Not here: the collectives (`processes`), several devices of one process (`mesh`). Next: `processes`.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator, Sequence
from math import ceil
from typing import Any, Final

from frontend.arguments.checks import whole
from frontend.distributed.ranks.processes import Work, broadcast, group
from frontend.evaluation.gradient_state import AFTER_BACKWARD
from frontend.evaluation.realize import realize_many
from frontend.nn import state
from frontend.nn.data import Sampler
from frontend.nn.module import Module
from frontend.tensor import Tensor
from hcq.errors import UsageError

BUCKET_MB: Final = 25


class DistributedDataParallel(Module):
    """A module whose gradients are averaged over all ranks by each `backward`.

    `module` keeps its parameters; those of rank 0, and its buffers, are sent to all ranks first. Gradients
    are sent in buckets of `bucket_cap_mb` MiB, in the reverse order of the parameters: while one is on its
    way, the next is read from the device. A parameter without a gradient on some rank counts as 0 there.
    `device_ids`, `output_device`, `find_unused_parameters` and `broadcast_buffers` are PyTorch's, and change
    nothing.

    Raises `UsageError` before `init_process_group`, and for a module without parameters that need gradients.
    """

    def __init__(
        self,
        module: Module,
        device_ids: Sequence[Any] | None = None,  # noqa: ARG002 - the field's signature
        output_device: Any = None,  # noqa: ARG002 - as above
        *,
        bucket_cap_mb: float = BUCKET_MB,
        find_unused_parameters: bool = False,  # noqa: ARG002 - as above
        broadcast_buffers: bool = True,  # noqa: ARG002 - as above
    ) -> None:
        super().__init__()
        self.module = module
        if not self._trained():
            raise UsageError("DistributedDataParallel: no parameter of the module needs a gradient")
        self._bytes = int(bucket_cap_mb * (1 << 20))
        self._paused = False
        group()
        for t in state.get_state_dict(module).values():
            broadcast(t, 0)
        own = weakref.ref(self)

        def after(changed: Sequence[Any]) -> None:
            model = own()
            if model is None:
                AFTER_BACKWARD.remove(after)
            else:
                model.after_backward(changed)

        AFTER_BACKWARD.append(after)

    def _trained(self) -> list[Tensor]:
        return [p for p in self.module.parameters() if p.requires_grad]

    def forward(self, *args: Any, **names: Any) -> Any:
        """Return what the module returns."""
        return self.module(*args, **names)

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Add up gradients without exchange inside a `with` block.

        The next `backward` outside averages them.
        """
        self._paused = True
        try:
            yield
        finally:
            self._paused = False

    def after_backward(self, changed: Sequence[Any]) -> None:
        """Average the gradients over all ranks if `backward` gave one to a parameter of the module.

        Raises `ProcessGroupError`.
        """
        trained = self._trained()
        own = {id(p) for p in trained}
        if self._paused or not any(id(t) in own for t in changed):
            return
        realize_many([p.grad for p in trained if p.grad is not None])
        sent = [_sent(bucket) for bucket in _buckets(trained, self._bytes)]
        for bucket, data, work in sent:
            work.wait()
            at = 0
            for p in bucket:
                part = data[at : at + p.numel()] / group().size
                p.grad = Tensor(part.reshape(p.shape), dtype=p.dtype, device=p.device)
                at += p.numel()


def _buckets(parameters: Sequence[Tensor], most: int) -> list[list[Tensor]]:
    """Return the parameters in reverse order, in groups of one dtype and of at most `most` bytes."""
    found: list[list[Tensor]] = []
    size = 0
    for p in reversed(parameters):
        if not found or size + p.nbytes() > most or found[-1][-1].dtype is not p.dtype:
            found.append([])
            size = 0
        found[-1].append(p)
        size += p.nbytes()
    return found


def _sent(bucket: list[Tensor]) -> tuple[list[Tensor], Any, Work]:
    """Return a bucket, the array that its sum will be in, and the collective in progress."""
    import numpy as np  # noqa: PLC0415 - importing the frontend loads no NumPy

    wide = "float64" if bucket[0].dtype.name == "float64" else "float32"
    rows = [np.zeros(p.numel()) if p.grad is None else p.grad.numpy().reshape(-1) for p in bucket]
    data = np.concatenate([row.astype(wide) for row in rows])
    made = group()
    made.count()
    request = made.world.Iallreduce(made.mpi.IN_PLACE, data, made.mpi.SUM)
    return bucket, data, Work(made, request, "all_reduce of gradients", lambda: None)


class DistributedSampler(Sampler):
    """The numbers of the samples that this rank takes: of every `num_replicas`, one.

    With `shuffle` the order is drawn anew for each `set_epoch`, the same on all ranks (it is not PyTorch's).
    All ranks get as many: the first samples are taken again at the end, or with `drop_last` the last ones are
    left out. `num_replicas` and `rank` are by default those of the process group. Raises `UsageError` for a
    rank that does not exist, and without a group.
    """

    def __init__(  # noqa: PLR0917 - the field's signature
        self,
        dataset: Any,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,  # noqa: FBT001, FBT002 - the field's signature
        seed: int = 0,
        drop_last: bool = False,  # noqa: FBT001, FBT002 - the field's signature
    ) -> None:
        super().__init__(dataset)
        self.num_replicas = group().size if num_replicas is None else whole(num_replicas, "num_replicas")
        self.rank = group().rank if rank is None else whole(rank, "rank")
        if not 0 <= self.rank < self.num_replicas:
            raise UsageError(f"rank: wanted 0 to {self.num_replicas - 1}, saw {self.rank}")
        self.shuffle, self.seed, self.drop_last, self.epoch = shuffle, seed, drop_last, 0
        total = len(dataset)
        self.num_samples = total // self.num_replicas if drop_last else ceil(total / self.num_replicas)

    def set_epoch(self, epoch: int) -> None:
        """Draw another order for the next pass."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        import numpy as np  # noqa: PLC0415 - as above

        total = len(self.data_source)
        order = (
            np.random.default_rng((self.seed, self.epoch)).permutation(total)
            if self.shuffle
            else np.arange(total)
        )
        every = np.resize(order, self.num_samples * self.num_replicas)
        return iter(every[self.rank :: self.num_replicas].tolist())

    def __len__(self) -> int:
        return self.num_samples
