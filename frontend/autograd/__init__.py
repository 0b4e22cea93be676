"""Gradients in reverse mode: from the graph of a value to graphs of its gradients.

Not here: which tensors keep a gradient (`frontend.evaluation.gradient_state`). Next: `engine`, the traversal;
`primitives`, a rule for each operation; `rules`, functions with a rule of their own.
"""

# ruff: noqa: I001 - lists of names stand in rows

from __future__ import annotations

from typing import TYPE_CHECKING

from hcq.names import lazy

if TYPE_CHECKING:
    from frontend.autograd import functional
    from frontend.autograd.function import Function
    from frontend.autograd.grad_modes import (
        detect_anomaly, enable_grad, inference_mode, no_grad, set_detect_anomaly, set_grad_enabled,
    )  # fmt: skip
    from frontend.autograd.gradients import grad, gradcheck, gradgradcheck
    from frontend.nn.parameter import Variable
    from frontend.torch.gradients import backward

__all__ = [
    "Function", "Variable", "backward", "detect_anomaly", "enable_grad", "functional", "grad", "gradcheck",
    "gradgradcheck", "inference_mode", "no_grad", "set_detect_anomaly", "set_grad_enabled",
]  # fmt: skip

if not TYPE_CHECKING:  # type checkers know all names
    __getattr__, __dir__ = lazy(
        __name__,
        __all__,
        {
            "Function": "frontend.autograd.function",
            "Variable": "frontend.nn.parameter",
            "backward": "frontend.torch.gradients",
            "functional": "frontend.autograd.functional",
            **dict.fromkeys(("grad", "gradcheck", "gradgradcheck"), "frontend.autograd.gradients"),
            **dict.fromkeys(
                (
                    "detect_anomaly",
                    "enable_grad",
                    "inference_mode",
                    "no_grad",
                    "set_detect_anomaly",
                    "set_grad_enabled",
                ),
                "frontend.autograd.grad_modes",
            ),
        },
    )
