"""PyTorch's module `nn.utils.parametrizations`; see `frontend.torch.parametrizations`."""

from hcq.names import lazy

__all__ = ["spectral_norm", "weight_norm"]  # noqa: F822 - they load later
__getattr__, __dir__ = lazy(__name__, __all__, dict.fromkeys(__all__, "frontend.torch.parametrizations"))
