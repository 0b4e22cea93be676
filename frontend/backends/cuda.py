"""The settings of `torch.backends.cuda`; see `frontend.backends`."""

from __future__ import annotations

from typing import Any


class _Products:
    """Settings of products. Another name raises `AttributeError`."""

    __slots__ = (
        "allow_bf16_reduced_precision_reduction", "allow_fp16_reduced_precision_reduction", "allow_tf32",
        "fp32_precision",
    )  # fmt: skip

    def __init__(self) -> None:
        unset: Any = self
        unset.allow_tf32 = unset.allow_bf16_reduced_precision_reduction = False
        unset.allow_fp16_reduced_precision_reduction, unset.fp32_precision = False, "ieee"


matmul = _Products()


def is_built() -> bool:
    """Return True: GPUs need no build of their own."""
    return True
