"""Optimisers: a step assigns new values to parameters, from the gradients that `backward` stored.

Not here: gradients (`frontend.autograd`), mixed precision (`frontend.nn.amp`).
"""

from __future__ import annotations

from sys import modules
from typing import TYPE_CHECKING

from frontend.optim.adam import Adam, Adamax, AdamW, NAdam, RAdam
from frontend.optim.base import Optimizer
from frontend.optim.descent import ASGD, SGD, Adadelta, Adagrad, RMSprop, Rprop
from frontend.optim.group import Group
from frontend.optim.layerwise import LAMB, LARS, Adafactor, Muon
from frontend.optim.lbfgs import LBFGS
from hcq.names import lazy

if TYPE_CHECKING:
    from frontend.optim import lr_scheduler, swa_utils

__all__ = [
    "ASGD", "LAMB", "LARS", "LBFGS", "SGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax",
    "Group", "Muon", "NAdam", "Optimizer", "RAdam", "RMSprop", "Rprop", "lr_scheduler", "swa_utils",
]  # fmt: skip

if not TYPE_CHECKING:  # type checkers know all names
    __getattr__, __dir__ = lazy(
        __name__, __all__, {n: f"{__name__}.{n}" for n in ("lr_scheduler", "swa_utils")}
    )

_HERE = "adadelta adagrad adamax adamw asgd nadam optimizer radam rmsprop rprop sgd"
for _name in _HERE.split():  # PyTorch's modules, with the names of this one
    modules[f"{__name__}.{_name}"] = globals()[_name] = modules[__name__]
required = object()
"""The default of a setting that has none, in older optimisers of programs."""


def _default_to_fused_or_foreach(*_args: object, **_names: object) -> tuple[bool, bool]:
    """Return whether steps are fused, and over lists: neither is chosen here."""
    return False, False
