"""Compile the CUDA C++ kernels by NVRTC for every target, and keep the PTX as test data.

    python -m tools.guests.build_cuda

Needs `pip install 'hcq[cuda]'`. Writes one archive a target to `tests/interop/data`, with a module for each
kernel. Not here: running the data (`tests/interop/test_interop_cuda.py`).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from interop import cuda
from tools.guests import build, cuda_cases, split

TARGETS: Final = ("sm_80", "sm_90a", "sm_120a")
SOURCE: Final = Path(__file__).with_name("cuda_kernels.cu")


def main() -> int:
    """Compile all targets; return the exit status."""
    for target in TARGETS:
        text = build.tidy(cuda.to_ptx(SOURCE.read_text(), target, name=SOURCE.name))
        parts = split.items(text)
        kernels = [
            (case.name, ({"entry": case.name}, split.module_of(parts, case.name).encode()))
            for case in cuda_cases.CASES
            if case.only in {"", target}
        ]
        path = build.DATA / f"cuda_{target}.tar.xz"
        build.write(path, kernels)
        print(f"{path.name}: {len(kernels)} kernels, {path.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
