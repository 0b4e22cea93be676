"""The schedules of learning rates under PyTorch's name: `optim.lr_scheduler.CosineAnnealingLR`.

Next: `schedules` and `frontend.torch.schedules`, where they are defined.
"""

from frontend.optim import schedules
from frontend.optim.schedules import Schedule as LRScheduler
from hcq.names import lazy

_LRScheduler = LRScheduler  # PyTorch's older name
_LATER = ("ChainedScheduler", "CyclicLR", "MultiplicativeLR", "SequentialLR")
_HERE = {n: v for n, v in vars(schedules).items() if n.endswith("LR") or n in schedules.OTHERS}
globals().update(_HERE)
__all__ = ["LRScheduler", *_HERE, *_LATER]  # noqa: PLE0604 - names are texts
__getattr__, __dir__ = lazy(__name__, __all__, dict.fromkeys(_LATER, "frontend.torch.schedules"))
