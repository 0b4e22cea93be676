"""Optimisers: a step assigns new values to parameters, from the gradients that `backward` stored.

Not here: gradients (`frontend.autograd`), schedules of the learning rate (`frontend.nn.schedules`), mixed
precision (`frontend.nn.amp`). Next: `optimiser`, the base; `descent`, `adam`, `layerwise` and
`lbfgs`, the rules.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from frontend.nn.optim.adam import Adam, Adamax, AdamW, NAdam, RAdam
from frontend.nn.optim.descent import ASGD, SGD, Adadelta, Adagrad, RMSprop, Rprop
from frontend.nn.optim.layerwise import LAMB, LARS, Muon
from frontend.nn.optim.lbfgs import LBFGS
from frontend.nn.optim.optimiser import Group, Optimizer

if TYPE_CHECKING:
    from frontend.nn.optim import lr_scheduler

__all__ = [
    "ASGD", "LAMB", "LARS", "LBFGS", "SGD", "Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "Group", "Muon",
    "NAdam", "Optimizer", "RAdam", "RMSprop", "Rprop", "lr_scheduler",
]  # fmt: skip

if not TYPE_CHECKING:  # type checkers know all names

    def __dir__() -> list[str]:
        return __all__

    def __getattr__(name: str) -> object:
        """Load `lr_scheduler`, which needs this package, when it is first used."""
        if name != "lr_scheduler":
            raise AttributeError(f"module 'frontend.nn.optim' has no attribute {name!r}")
        return import_module("frontend.nn.optim.lr_scheduler")
