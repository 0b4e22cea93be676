"""PyTorch's module `autograd.functional`; see `frontend.torch.gradients`."""

from hcq.names import lazy

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]  # noqa: F822 - they load later
__getattr__, __dir__ = lazy(__name__, __all__, dict.fromkeys(__all__, "frontend.torch.gradients"))
