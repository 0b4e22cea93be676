"""Training on several devices under the names of `torch.nn.parallel`.

Not here: gradients of several processes (`frontend.distributed.ranks.parallel`), several devices of one
process (`frontend.distributed`, docs/many-devices.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from frontend.device import Device
from frontend.nn.module import Module
from hcq.errors import UnsupportedError
from hcq.names import lazy

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["DataParallel", "DistributedDataParallel"]  # noqa: F822 - loads when first used

__getattr__, __dir__ = lazy(
    __name__, __all__, {"DistributedDataParallel": "frontend.distributed.ranks.parallel"}
)


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
