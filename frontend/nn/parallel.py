"""Training on several devices under the names of `torch.nn.parallel`.

With `DistributedDataParallel` each rank has the whole model, and its own part of each batch. After `backward`
the gradients of all ranks are averaged, so that every rank makes the same step.

    sampler = DistributedSampler(data)
    model = DistributedDataParallel(model)
    for x, y in DataLoader(data, batch_size=32, sampler=sampler):
        functional.cross_entropy(model(x), y).backward()
        optimiser.step()

Not here: collectives of processes (`frontend.distributed.ranks`), several devices of one process
(`frontend.distributed`, docs/many-devices.md).
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from frontend.autograd.grad_modes import is_grad_enabled
from frontend.device import Device
from frontend.distributed.ranks.collectives import broadcast
from frontend.distributed.ranks.objects import all_gather_object
from frontend.distributed.ranks.processes import ProcessGroup, Work, joined
from frontend.evaluation.gradient_state import AFTER_BACKWARD
from frontend.evaluation.realize import realize_many
from frontend.nn import state
from frontend.nn.module import Module
from frontend.tensor import Tensor
from hcq.errors import UnsupportedError, UsageError

__all__ = ["DataParallel", "DistributedDataParallel"]
BUCKET_MB: Final = 25


class DistributedDataParallel(Module):
    """A module whose gradients are averaged over all ranks of a group by each `backward`.

    `module` keeps its parameters; those of the first rank are sent to all ranks first. With
    `broadcast_buffers` its buffers are, too, and again before a forward pass that follows one with gradients.
    Gradients are sent in buckets of `bucket_cap_mb` MiB, in the reverse order of the parameters: while one is
    on its way, the next is read from the device. With `find_unused_parameters` or `static_graph`, a parameter
    that has a gradient on some ranks counts as its own, or 0, on the others, and one without on all keeps
    what it has. Other arguments are PyTorch's, and change nothing.

    Raises `UsageError` before `init_process_group`, for a module without parameters that need gradients, and
    for modules that differ between ranks.
    """

    def __init__(  # noqa: PLR0917 - the field's signature
        self,
        module: Module,
        device_ids: Sequence[Any] | None = None,  # noqa: ARG002 - as above
        output_device: Any = None,  # noqa: ARG002 - as above
        dim: int = 0,  # noqa: ARG002 - as above
        broadcast_buffers: bool = True,  # noqa: FBT001, FBT002 - as above
        init_sync: bool = True,  # noqa: FBT001, FBT002 - as above
        process_group: ProcessGroup | None = None,
        bucket_cap_mb: float | None = None,
        find_unused_parameters: bool = False,  # noqa: FBT001, FBT002 - as above
        check_reduction: bool = False,  # noqa: ARG002, FBT001, FBT002 - as above
        gradient_as_bucket_view: bool = False,  # noqa: ARG002, FBT001, FBT002 - as above
        static_graph: bool = False,  # noqa: FBT001, FBT002 - as above
    ) -> None:
        super().__init__()
        self.module = module
        if not self._trained():
            raise UsageError("DistributedDataParallel: no parameter of the module needs a gradient")
        self._bytes = int((BUCKET_MB if bucket_cap_mb is None else bucket_cap_mb) * (1 << 20))
        self._paused, self._sent = False, True
        self._some = find_unused_parameters or static_graph
        self._buffers_too = broadcast_buffers
        self.process_group = joined(process_group)
        if init_sync:
            self._begin_alike()
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

    def _begin_alike(self) -> None:
        """Give every rank the state of the first. Raises `UsageError` where names or shapes differ."""
        kinds = [(name, list(t.shape), t.dtype.name) for name, t in state.get_state_dict(self.module).items()]
        found: list[Any] = []
        all_gather_object(found, kinds, self.process_group)
        for rank, other in zip(self.process_group.ranks, found, strict=True):
            if other != found[0]:
                seen = next((x for x in other if x not in found[0]), f"{len(other)} tensors")
                raise UsageError(
                    f"DistributedDataParallel: rank {rank} has a module with {seen}, rank "
                    f"{self.process_group.ranks[0]} has not\nhint: build the same module on all ranks"
                )
        for t in [*self.module.parameters(), *(self.module.buffers() if self._buffers_too else [])]:
            broadcast(t, group=self.process_group, group_src=0)

    def forward(self, *args: Any, **names: Any) -> Any:
        """Return what the module returns."""
        if self._sent and self._buffers_too:
            for t in self.module.buffers():
                broadcast(t, group=self.process_group, group_src=0)
        self._sent = is_grad_enabled() and not self._paused
        return self.module(*args, **names)

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Add up gradients without exchange inside a `with` block.

        The next `backward` outside averages them.
        """
        before, self._paused = self._paused, True
        try:
            yield
        finally:
            self._paused = before

    def after_backward(self, changed: Sequence[Any]) -> None:
        """Average the gradients over all ranks if `backward` gave one to a parameter of the module.

        Raises `ProcessGroupError`; `UsageError` on all ranks for a parameter without a gradient on one of
        them, unless such are expected.
        """
        trained, given = self._trained(), {id(t) for t in changed}
        if self._paused or not any(id(p) in given for p in trained):
            return
        made, sent = self.process_group, trained
        if self._some:
            uses = np.array([id(p) in given for p in trained], "i4")
            request = made.counted(f"all_reduce of the uses of {len(trained)} parameters").Iallreduce(
                made.mpi.IN_PLACE, uses, made.mpi.SUM
            )
            made.until(request, "all_reduce of uses", made.calls)
            sent = [p for p, count in zip(trained, uses, strict=True) if count]
        realize_many([p.grad for p in sent if p.grad is not None])
        buckets = [_sent(made, bucket, given) for bucket in _buckets(sent, self._bytes)]
        for _, _, work in buckets:
            work.wait()
        if not self._some:
            ends = [zip(bucket, data[-len(bucket) :], strict=True) for bucket, data, _ in buckets]
            self._verify([one for pairs in ends for one in pairs])
        for bucket, data, _ in buckets:
            at = 0
            for p in bucket:
                part = data[at : at + p.numel()] / made.size
                _replace(p, Tensor(part.reshape(p.shape), dtype=p.dtype, device=p.device))
                at += p.numel()

    def _verify(self, counts: list[tuple[Tensor, float]]) -> None:
        """Raise `UsageError` for parameters to which fewer ranks than all gave a gradient."""
        missing = {id(p) for p, count in counts if count < self.process_group.size}
        if missing:
            names = [name for name, p in self.module.named_parameters() if id(p) in missing]
            raise UsageError(
                f"DistributedDataParallel: some rank has no gradient of {', '.join(names[:4])}\n"
                "hint: find_unused_parameters=True counts it as 0 there"
            )


def _replace(p: Tensor, gradient: Tensor) -> None:
    """Store a gradient, into the tensor that a program may hold if there is one."""
    if p.grad is None:
        p.grad = gradient
        return
    with Tensor.no_grad():
        p.grad.assign(gradient)


def _buckets(parameters: Sequence[Tensor], most: int) -> list[list[Tensor]]:
    """Return the parameters in reverse order, in groups of one dtype and of at most `most` bytes."""
    found: list[list[Tensor]] = []
    size = 0
    for p in reversed(parameters):
        if not found or size + p.nbytes > most or found[-1][-1].dtype is not p.dtype:
            found.append([])
            size = 0
        found[-1].append(p)
        size += p.nbytes
    return found


def _sent(made: ProcessGroup, bucket: list[Tensor], given: set[int]) -> tuple[list[Tensor], Any, Work]:
    """Return a bucket, the array that its sum will be in, and the collective in progress.

    After the gradients the array has for each how many ranks have it.
    """
    wide = "float64" if bucket[0].dtype.name == "float64" else "float32"
    rows = [np.zeros(p.numel()) if p.grad is None else p.grad.numpy().reshape(-1) for p in bucket]
    rows.append(np.array([id(p) in given for p in bucket]))
    data = np.concatenate([row.astype(wide) for row in rows])
    request = made.counted(
        f"all_reduce of the gradients of {len(bucket)} parameters, {data.size} {data.dtype}"
    ).Iallreduce(made.mpi.IN_PLACE, data, made.mpi.SUM)
    return bucket, data, Work(made, request, "all_reduce of gradients", lambda: None)


class DataParallel(Module):
    """A module on one device, whose names of states begin with "module.", as PyTorch's wrapper.

    Raises `UnsupportedError` for several devices: a mesh divides a batch without a wrapper.
    """

    def __init__(
        self, module: Module, device_ids: Sequence[Any] | None = None, output_device: Any = None, dim: int = 0
    ) -> None:
        super().__init__()
        del output_device
        found = list(Device.gpus() if device_ids is None else device_ids)
        if len(found) > 1:
            raise UnsupportedError(
                f"DataParallel: wanted one device, saw {found}\nhint: model.to('cuda:0,cuda:1') and "
                "x.shard(('cuda:0', 'cuda:1'), axis=0) divide a batch; docs/many-devices.md"
            )
        self.module, self.device_ids, self.dim = module, found, dim

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return what the module returns."""
        return self.module(*args, **kwargs)
