"""Compile the CUDA C++ kernels by NVRTC for every target, and keep the PTX as test data.

    python -m tests.guests.build_cuda
    python -m tests.guests.build_cuda cuda_library.cu     # nvidia-cuda-cccl 13.3
    python -m tests.guests.build_cuda cuda_products.cu    # nvidia-cutlass 4.2, nvidia-cuda-cccl 13.0

Needs the extra `cuda`; for parts of CUB and CUTLASS these versions: CUTLASS 4.2 does not compile with a later
CCCL. Writes to `tests/interop/data` one archive a target, with a module for each kernel, the module of
kernels with clusters, and the modules that print and assert; or an archive of a source of `LIBRARIES`, with
the kernels of all targets, which stores once what they share.

Not here: running the data (`tests/interop/test_interop_cuda.py`, `tests/interop/test_interop_output.py`,
`tests.guests.corpus`).
"""

from __future__ import annotations

import lzma
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hcq.errors import UnsupportedError
from interop import cuda
from tests.guests import (
    build,
    cuda_cases,
    cuda_library_cases,
    cuda_more_cases,
    cuda_products_cases,
    split,
)
from tools.arguments import command, reported

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

TARGETS: Final = ("sm_80", "sm_86", "sm_89", "sm_90a", "sm_120a")
SOURCES: Final = {"cuda_kernels.cu": cuda_cases.CASES, "cuda_more.cu": cuda_more_cases.CASES}
"""Source -> its kernels."""
LIBRARIES: Final = {
    "cuda_library.cu": cuda_library_cases.CASES,
    "cuda_products.cu": cuda_products_cases.CASES,
}
"""The same of sources made of parts of CUB and CUTLASS."""
CLUSTERS: Final = build.DATA / "clusters"
CLUSTER_TARGETS: Final = ("sm_90a", "sm_120a")
PRINTING: Final = ("talk", "check")
"""Modules in the folder of `build.SHOW`; their text is kept as it is, to be read."""


def main(argv: Sequence[str] | None = None) -> int:
    """Compile all targets; return the exit status."""
    parser = command("tests.guests.build_cuda", __doc__)
    parser.add_argument("source", nargs="?", choices=sorted(LIBRARIES), help="a file in tests/guests")
    source: str | None = parser.parse_args(argv).source
    if source is not None:
        made = [(f"{name}@{target}", code) for target in TARGETS for name, code in _kernels(source, target)]
        return _write(Path(source).stem, made)
    for target in TARGETS:
        _write(f"cuda_{target}", [one for name in SOURCES for one in _kernels(name, target)])
    for name in PRINTING:
        path = build.SHOW.with_name(f"{name}.cu")
        text = build.tidy(cuda.to_ptx(path.read_text(), "sm_80", name=path.name))
        path.with_suffix(".ptx").write_text(text)
    path = CLUSTERS / "clusters.cu"
    for target in CLUSTER_TARGETS:
        text = build.tidy(cuda.to_ptx(path.read_text(), target, name=path.name))
        (CLUSTERS / f"{target}.ptx.xz").write_bytes(lzma.compress(text.encode(), preset=9))
    return 0


def _kernels(source: str, target: str) -> Iterator[tuple[str, tuple[dict[str, Any], bytes]]]:
    """Yield the name, the facts and the module of each kernel of a source that a target has."""
    options = ["-default-device", f"-I{_cutlass()}"] if source == "cuda_products.cu" else []
    text = Path(__file__).with_name(source).read_text()
    parts = split.items(build.tidy(cuda.to_ptx(text, target, name=source, options=options)))
    for case in (SOURCES | LIBRARIES)[source]:
        if case.has(target):
            yield case.name, ({"entry": case.name}, split.module_of(parts, case.name).encode())


def _write(name: str, kernels: list[tuple[str, tuple[dict[str, Any], bytes]]]) -> int:
    path = build.DATA / f"{name}.tar.xz"
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
