"""PyTorch's module `optim.swa_utils`; see `frontend.torch.averages`."""

from hcq.names import lazy

_AVERAGES = ("get_ema_avg_fn", "get_ema_multi_avg_fn", "get_swa_avg_fn", "get_swa_multi_avg_fn")
__all__ = ["SWALR", "AveragedModel", "update_bn", *_AVERAGES]  # noqa: F822, PLE0604 - they load later
__getattr__, __dir__ = lazy(__name__, __all__, dict.fromkeys(__all__, "frontend.torch.averages"))
