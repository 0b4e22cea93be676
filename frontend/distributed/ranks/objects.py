"""Collectives of Python objects between the processes of a group, under PyTorch's names. They are pickled.

Groups and ranks are given as for tensors. Every function raises `ProcessGroupError`, and `UsageError` for
lists of another length.

Not here: tensors (`collectives`).
"""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np

from frontend.distributed.ranks.processes import ProcessGroup, joined
from hcq.errors import UsageError

Group = ProcessGroup | None


def _gathered(made: ProcessGroup, name: str, value: Any) -> list[Any]:
    data = np.frombuffer(pickle.dumps(value), "u1")
    sizes = np.empty(made.size, "i8")
    made.until(made.counted(name).Iallgather(np.array([data.size]), sizes), name, made.calls)
    found = np.empty(int(sizes.sum()), "u1")
    made.until(made.world.Iallgatherv(data, [found, sizes.tolist()]), name, made.calls)
    ends = np.cumsum(sizes)
    return [pickle.loads(found[e - n : e].tobytes()) for e, n in zip(ends, sizes, strict=True)]  # noqa: S301 - of the same program


def _root(made: ProcessGroup, rank: int | None, what: str, own: int | None) -> int:
    return made.rank_of(0 if rank is None and own is None else rank, what, own)


def all_gather_object(object_list: list[Any], obj: Any, group: Group = None) -> None:
    """Store the objects of all ranks into a list."""
    made = joined(group)
    if made.rank >= 0:
        object_list[:] = _gathered(made, "all_gather_object", obj)


def gather_object(
    obj: Any, object_gather_list: list[Any] | None = None, dst: int | None = None, group: Group = None,
    group_dst: int | None = None,
) -> None:  # fmt: skip
    """Store the objects of all ranks into the list of rank `dst`, by default 0."""
    if (made := joined(group)).rank < 0:
        return
    here = made.rank == _root(made, dst, "gather_object, dst", group_dst)
    if here and object_gather_list is None:
        raise UsageError(f"gather_object: rank {made.ranks[made.rank]} gives the list, saw None")
    found = _gathered(made, "gather_object", obj)
    if here and object_gather_list is not None:
        object_gather_list[:] = found


def broadcast_object_list(
    object_list: list[Any], src: int | None = None, group: Group = None, device: Any = None,  # noqa: ARG001 - the field's signature
    group_src: int | None = None,
) -> None:  # fmt: skip
    """Replace the objects of a list by those of rank `src`, by default 0, alone of which are pickled."""
    if (made := joined(group)).rank < 0:
        return
    root = _root(made, src, "broadcast_object_list, src", group_src)
    given = list(object_list) if made.rank == root else None
    found = _gathered(made, f"broadcast_object_list from rank {made.ranks[root]}", given)[root]
    if len(found) != len(object_list):
        raise UsageError(
            f"broadcast_object_list: wanted {len(found)} objects as on rank {root}, saw {len(object_list)}"
        )
    object_list[:] = found


def scatter_object_list(
    scatter_object_output_list: list[Any], scatter_object_input_list: list[Any] | None = None,
    src: int | None = None, group: Group = None, group_src: int | None = None,
) -> None:  # fmt: skip
    """Store this rank's object of the list of rank `src`, by default 0, as the first of another list."""
    if (made := joined(group)).rank < 0:
        return
    root = _root(made, src, "scatter_object_list, src", group_src)
    name = f"scatter_object_list from rank {made.ranks[root]}"
    given = scatter_object_input_list if made.rank == root else None
    if not scatter_object_output_list or (made.rank == root and len(given or ()) != made.size):
        raise UsageError(f"scatter_object_list: wanted {made.size} objects, and a list for one, saw {given}")
    scatter_object_output_list[0] = _gathered(made, name, given)[root][made.rank]
