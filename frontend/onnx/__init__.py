"""Models of ONNX files on any device: `load` one, then call it with its inputs by name.

    from frontend import onnx
    model = onnx.load("model.onnx")
    found = model(x=array)                      # {"y": Tensor}

No other package is needed. The page is docs/onnx.md.

Not here: writing ONNX files. Next: `model`; `table`, the operators.
"""

from __future__ import annotations

from frontend.onnx.model import Described, OnnxModel, load

__all__ = ["Described", "OnnxModel", "load"]
