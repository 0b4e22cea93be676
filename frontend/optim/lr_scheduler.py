"""The schedules of learning rates under PyTorch's name: `optim.lr_scheduler.CosineAnnealingLR`.

Next: `schedules`, where they are defined.
"""

# ruff: noqa: I001 - lists of names stand in rows

from __future__ import annotations

from frontend.optim.schedules import (
    ConstantLR, CosineAnnealingLR, CosineAnnealingWarmRestarts, ExponentialLR, LambdaLR, LinearLR,
    MultiStepLR, OneCycleLR, PolynomialLR, ReduceLROnPlateau, StepLR,
)  # fmt: skip

__all__ = [
    "ConstantLR", "CosineAnnealingLR", "CosineAnnealingWarmRestarts", "ExponentialLR", "LambdaLR", "LinearLR",
    "MultiStepLR", "OneCycleLR", "PolynomialLR", "ReduceLROnPlateau", "StepLR",
]  # fmt: skip
