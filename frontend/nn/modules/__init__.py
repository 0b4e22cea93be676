"""PyTorch's `nn.modules`: its names are those of `frontend.nn`, and of the modules beside this one.

Most of its modules are this one, which has the names of all, and the bases that programs derive from.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any, Final

_MODULES: Final = ("module", "utils")
_BASES: Final = {
    "_AdaptiveMaxPoolNd": "pools._AdaptiveMax", "_AvgPoolNd": "pools._AvgPool",
    "_MaxPoolNd": "pools._MaxPool", "_BatchNorm": "normalisation.BatchNorm",
    "_InstanceNorm": "normalisation.InstanceNorm", "_NormBase": "normalisation.NormBase",
    "_ConvNd": "convolutions._Convolution", "_ConvTransposeNd": "convolutions._ConvTranspose",
    "_DropoutNd": "layers.Dropout", "_Loss": "functions.Loss", "_WeightedLoss": "functions.WeightedLoss",
    "RNNBase": "recurrent._Recurrent", "RNNCellBase": "recurrent._Cell",
}  # fmt: skip
"""Name of a base of layers -> the module and name of ours."""
_HERE = "activation batchnorm channelshuffle container conv distance dropout flatten fold instancenorm linear"
_HERE += " loss normalization padding pixelshuffle pooling rnn sparse transformer upsampling"

for _name in _HERE.split():
    sys.modules[f"{__name__}.{_name}"] = globals()[_name] = sys.modules[__name__]


def __getattr__(name: str) -> Any:
    """Return a name of `frontend.nn`, a base of layers, or a module. Raises `AbsentNameError`."""
    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    home, _, own = _BASES.get(name, f".{name}").partition(".")
    return getattr(import_module(f"frontend.nn.{home}".rstrip(".")), own)


def __dir__() -> list[str]:
    return [*_MODULES, *dir(import_module("frontend.nn"))]
