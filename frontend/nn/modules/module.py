"""PyTorch's `nn.modules.module`: the base of modules, and hooks of all modules; see `nn.module`."""

from frontend.nn.hooks import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
    register_module_full_backward_hook,
    register_module_full_backward_pre_hook,
)
from frontend.nn.module import Module

__all__ = [
    "Module", "register_module_forward_hook", "register_module_forward_pre_hook",
    "register_module_full_backward_hook", "register_module_full_backward_pre_hook",
]  # fmt: skip
