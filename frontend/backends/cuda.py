"""The settings of `torch.backends.cuda`; see `frontend.backends`."""

from __future__ import annotations

from types import SimpleNamespace

matmul = SimpleNamespace(
    allow_tf32=False,
    allow_fp16_reduced_precision_reduction=False,
    allow_bf16_reduced_precision_reduction=False,
)


def is_built() -> bool:
    """Return True: GPUs need no build of their own."""
    return True
