"""Compile the CUDA C++ kernels by NVRTC for every target, and keep the PTX as test data.

    python -m tests.guests.build_cuda

Needs the extra `cuda`. Writes one archive a target to `tests/interop/data`, with a module for each
kernel, the module of kernels with clusters, and the modules that print and assert.

Not here: running the data (`tests/interop/test_interop_cuda.py`,
`tests/interop/test_interop_output.py`).
"""

from __future__ import annotations

import lzma
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from interop import cuda
from tests.guests import build, cuda_cases, cuda_more_cases, split
from tools.arguments import command, reported

if TYPE_CHECKING:
    from collections.abc import Sequence

TARGETS: Final = ("sm_80", "sm_86", "sm_89", "sm_90a", "sm_120a")
SOURCES: Final = {"cuda_kernels.cu": cuda_cases.CASES, "cuda_more.cu": cuda_more_cases.CASES}
"""Source -> its kernels."""
CLUSTERS: Final = build.DATA / "clusters"
CLUSTER_TARGETS: Final = ("sm_90a", "sm_120a")
PRINTING: Final = ("talk", "check")
"""Modules in the folder of `build.SHOW`; their text is kept as it is, to be read."""


def main(argv: Sequence[str] | None = None) -> int:
    """Compile all targets; return the exit status."""
    command("tests.guests.build_cuda", __doc__).parse_args(argv)
    for target in TARGETS:
        kernels = []
        for name, cases in SOURCES.items():
            source = Path(__file__).with_name(name)
            parts = split.items(build.tidy(cuda.to_ptx(source.read_text(), target, name=name)))
            kernels += [
                (case.name, ({"entry": case.name}, split.module_of(parts, case.name).encode()))
                for case in cases
                if case.has(target)
            ]
        path = build.DATA / f"cuda_{target}.tar.xz"
        build.write(path, kernels)
        print(f"{path.name}: {len(kernels)} kernels, {path.stat().st_size} bytes")
    for name in PRINTING:
        source = build.SHOW.with_name(f"{name}.cu")
        text = build.tidy(cuda.to_ptx(source.read_text(), "sm_80", name=source.name))
        source.with_suffix(".ptx").write_text(text)
    source = CLUSTERS / "clusters.cu"
    for target in CLUSTER_TARGETS:
        text = build.tidy(cuda.to_ptx(source.read_text(), target, name=source.name))
        (CLUSTERS / f"{target}.ptx.xz").write_bytes(lzma.compress(text.encode(), preset=9))
    return 0


if __name__ == "__main__":
    sys.exit(reported(main))
