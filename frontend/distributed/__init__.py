"""Tensors over several devices, and training by several processes.

Devices of one process: a *mesh* is a device whose name lists others, "cpu:0,cpu:1". A tensor on it is either
whole on every device, or divided along one axis (`Tensor.shard`, `Tensor.replicate`). Every method, gradient
and optimiser works on such a tensor: `rules` has a rule for each primitive operation.

    x = x.shard(("cpu:0", "cpu:1"), axis=0)
    model.to("cpu:0,cpu:1")              # parameters whole on both
    loss_of(model(x)).backward()         # gradients summed over the devices

Several processes: `init_process_group`, `all_reduce`, `DistributedDataParallel`, ... under PyTorch's names,
over MPI (`ranks`).

Not here: queues and memory of one device (`hcq`). Next: `mesh`, `rules`; docs/many-devices.md.
"""

from __future__ import annotations

from typing import Final

from hcq.names import lazy

_NAMES: Final = {
    "distributed.collectives": (
        "all_gather_of all_reduce_of all_to_all_of broadcast_of reduce_scatter_of send_to"
    ),
    "distributed.layout": "TensorLayout",
    "distributed.placement": "from_shards layout_of shards",
    "distributed.ranks.collectives": (
        "P2POp ReduceOp all_gather all_gather_into_tensor all_reduce all_to_all all_to_all_single barrier "
        "batch_isend_irecv broadcast gather irecv isend recv reduce reduce_scatter reduce_scatter_tensor "
        "scatter send"
    ),
    "distributed.ranks.objects": (
        "all_gather_object broadcast_object_list gather_object scatter_object_list"
    ),
    "distributed.ranks.processes": (
        "ProcessGroup ProcessGroupError Work destroy_process_group get_backend get_global_rank "
        "get_group_rank get_process_group_ranks get_rank get_world_size init_process_group is_available "
        "is_initialized new_group"
    ),
    "nn.parallel": "DistributedDataParallel",
    "utils.data.distributed": "DistributedSampler",
}
_HOMES: Final = {name: f"frontend.{home}" for home, names in _NAMES.items() for name in names.split()}
"""Name -> its module, which loads when the name is first used."""
__all__ = sorted(_HOMES)  # noqa: PLE0605 - names of the table

__getattr__, __dir__ = lazy(__name__, __all__, _HOMES)
