"""Places of the tensors of a program on a mesh: whole, or divided along an axis into random parts.

They are drawn by the seed of the program and the number of the line, so each run of a program has the same.
On one device nothing changes. Not here: running a program (`tensor_runs`).
"""

from __future__ import annotations

import random
from typing import Any


def placed(x: Any, *key: object) -> Any:
    """Return a new tensor, on a mesh divided into parts of random sizes, or whole."""
    if "," not in x.device or not x.shape:
        return x
    r = random.Random(str(key))  # noqa: S311 - programs, not secrets
    axis = r.randrange(-1, x.ndim)
    if axis < 0:
        return x
    count, size = x.device.count(",") + 1, x.shape[axis]
    ends = sorted(r.randint(0, size) for _ in range(count - 1))
    sizes = [end - begin for begin, end in zip([0, *ends], [*ends, size], strict=True)]
    return x.to("cpu").shard(x.device, axis, sizes=sizes if r.random() < 0.5 else None)


def moved(x: Any, *key: object) -> Any:
    """Return a result of a program, on a mesh in one of five cases divided otherwise, or whole."""
    if "," not in x.device:
        return x
    r = random.Random(str(key))  # noqa: S311 - as above
    axis = r.randrange(-1, x.ndim)
    if r.random() >= 0.2:
        return x
    return x.replicate(x.device) if axis < 0 else x.shard(x.device, axis)
