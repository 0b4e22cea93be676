"""Settings of libraries that PyTorch uses, under its names, for programs that set them at their head.

There is one compiler and no library below, so a setting that is set has no effect: kernels give the same bits
in each run (`deterministic`), are chosen once (`benchmark`), and products of float32 stay in float32
(`allow_tf32`). Reading a setting that does not exist raises `AttributeError`.

Not here: the precision of products (`frontend.set_float32_matmul_precision`).
"""

from __future__ import annotations

from frontend.backends import cuda, cudnn, mps
from frontend.backends import mps as mkldnn

__all__ = ["cuda", "cudnn", "mkldnn", "mps"]
