"""Compile the kernels made of parts of CUB and CUTLASS by NVRTC, and keep the PTX as test data.

    python -m tests.guests.build_library cuda_library.cu     # nvidia-cuda-cccl 13.3
    python -m tests.guests.build_library cuda_products.cu    # nvidia-cutlass 4.2, nvidia-cuda-cccl 13.0

Needs the extra `cuda` with these versions: CUTLASS 4.2 does not compile with a later CCCL. Writes one
archive a source to `tests/interop/data`, with the kernels of all targets; what they share is stored once.

Not here: running the data (`tests.guests.corpus`).
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hcq.errors import UnsupportedError
from interop import cuda
from tests.guests import build, build_cuda, cuda_library_cases, cuda_products_cases, split
from tools.arguments import command, reported

if TYPE_CHECKING:
    from collections.abc import Sequence

SOURCES: Final = {"cuda_library.cu": cuda_library_cases.CASES, "cuda_products.cu": cuda_products_cases.CASES}
"""Source -> its kernels."""


def main(argv: Sequence[str] | None = None) -> int:
    """Compile all targets of a source; return the exit status."""
    parser = command("tests.guests.build_library", __doc__)
    parser.add_argument("source", choices=sorted(SOURCES), help="the file in tests/guests")
    name: str = parser.parse_args(argv).source
    options = ["-default-device", f"-I{_cutlass()}"] if name == "cuda_products.cu" else []
    text = Path(__file__).with_name(name).read_text()
    kernels = []
    for target in build_cuda.TARGETS:
        parts = split.items(build.tidy(cuda.to_ptx(text, target, name=name, options=options)))
        kernels += [
            (f"{case.name}@{target}", ({"entry": case.name}, split.module_of(parts, case.name).encode()))
            for case in SOURCES[name]
            if case.has(target)
        ]
    path = build.DATA / Path(name).with_suffix(".tar.xz")
    build.write(path, kernels)
    print(f"{path.name}: {len(kernels)} kernels, {path.stat().st_size} bytes")
    return 0


def _cutlass() -> Path:
    """Return the headers of the wheel nvidia-cutlass. Raises `UnsupportedError` without it."""
    spec = find_spec("cutlass_library")
    if spec is None or spec.origin is None:
        raise UnsupportedError(
            "CUTLASS is not installed\nhint: pip install --no-deps nvidia-cutlass==4.2.0.0"
        )
    return Path(spec.origin).parent / "source" / "include"


if __name__ == "__main__":
    sys.exit(reported(main))
