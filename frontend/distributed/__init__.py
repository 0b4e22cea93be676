"""Tensors over several devices, and training by several processes.

Devices of one process: a *mesh* is a device whose name lists others, "cpu:0,cpu:1". A tensor on it is either
whole on every device, or divided along one axis (`Tensor.shard`, `Tensor.replicate`). Every method, gradient
and optimiser works on such a tensor: `rules` has a rule for each primitive operation.

    x = x.shard(("cpu:0", "cpu:1"), axis=0)
    model.to("cpu:0,cpu:1")              # parameters whole on both
    loss_of(model(x)).backward()         # gradients summed over the devices

Several processes: `init_process_group`, `all_reduce`, `DistributedDataParallel`, ... under PyTorch's names,
over MPI (`processes`, `parallel`).

Not here: queues and memory of one device (`hcq`). Next: `mesh`, `rules`; docs/many-devices.md.
"""

from __future__ import annotations

from frontend.distributed.collectives import (
    all_gather_of,
    all_reduce_of,
    all_to_all_of,
    broadcast_of,
    reduce_scatter_of,
    send,
)
from frontend.distributed.layout import TensorLayout
from frontend.distributed.placement import from_shards, layout_of, shards

__all__ = [
    "TensorLayout",
    "all_gather_of",
    "all_reduce_of",
    "all_to_all_of",
    "broadcast_of",
    "from_shards",
    "layout_of",
    "reduce_scatter_of",
    "send",
    "shards",
]
