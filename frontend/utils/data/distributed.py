"""PyTorch's name for the sampler of several processes.

Not here: the sampler itself (`frontend.distributed.ranks.parallel`).
"""

from __future__ import annotations

from frontend.distributed.ranks.parallel import DistributedSampler

__all__ = ["DistributedSampler"]
