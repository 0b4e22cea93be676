"""PyTorch's module `nn.utils.parametrize`; see `frontend.torch.parametrize`."""

from hcq.names import lazy

__all__ = ["ParametrizationList", "is_parametrized", "register_parametrization", "remove_parametrizations"]  # noqa: F822 - they load later
__getattr__, __dir__ = lazy(__name__, __all__, dict.fromkeys(__all__, "frontend.torch.parametrize"))
