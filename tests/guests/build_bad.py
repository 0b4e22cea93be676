"""Compile the kernels with one mistake each, broken and fixed, and keep the PTX as test data.

    python -m tests.guests.build_bad              # needs hcq[cuda]
    python -m tests.guests.build_bad --triton     # needs Triton

Writes one archive for each source to `tests/interop/data`, with the modules "NAME" and "NAME.fixed" of each
kernel; of Triton's kernels also one for each AMD GPU. Not here: running them (`tests.guests.bad_run`).
"""

from __future__ import annotations

import hashlib
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from interop import cuda
from tests.guests import bad_cases, build, cases, split
from tools.arguments import command, library, reported

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    _Kernels = list[tuple[str, tuple[dict[str, Any], bytes]]]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = command("tests.guests.build_bad", __doc__)
    parser.add_argument("--triton", action="store_true", help="the kernels of Triton, not those of CUDA C++")
    triton = parser.parse_args(argv).triton
    if triton:
        library("triton", cure="pip install 'triton>=3.6'")
    for name, target in bad_cases.ARCHIVES.items():
        source, launches = bad_cases.source_of(name), bad_cases.launches_of(name)
        if (source == bad_cases.TRITON) == triton:
            _write(name, (_triton if triton else _cuda)(source, launches, target))
    return 0


def _write(name: str, kernels: _Kernels) -> None:
    kept = build.DATA / f"bad_{name}.tar.xz"
    build.write(kept, kernels)
    print(f"{kept.name}: {len(kernels)} kernels, {kept.stat().st_size} bytes")


def _cuda(source: str, launches: Mapping[str, bad_cases.Launch], target: str) -> _Kernels:
    """Return the kernels of a CUDA C++ source for a target, broken and right."""
    path = bad_cases.path_of(source)
    kernels = []
    for suffix, defined in (("", "-DBROKEN"), (".fixed", "-DFIXED")):
        flags = [f"-I{bad_cases.SOURCES}", defined]
        parts = split.items(build.tidy(cuda.to_ptx(path.read_text(), target, name=path.name, options=flags)))
        for kernel in launches:
            facts = {"target": target, "source": digest(source)}
            kernels.append((kernel + suffix, (facts, split.module_of(parts, kernel).encode())))
    return kernels


def _triton(source: str, launches: Mapping[str, bad_cases.Launch], target: str) -> _Kernels:
    """Return Triton's kernels for a target, broken and right."""
    from tests.guests import bad_triton  # noqa: PLC0415 - needs Triton

    shape = (2 if target.startswith("gfx9") else 4, 2)  # 128 threads: more would hold the same elements
    kernels = []
    for suffix, fixed in (("", False), (".fixed", True)):
        for kernel, launch in launches.items():
            function = getattr(bad_triton, kernel)
            values = {
                name: one if isinstance(one, (int, float)) else cases.Data(np.zeros(1, one.dtype))
                for name, one in zip(function.arg_names, launch.arguments, strict=False)
            }
            constants = {**launch.constants, "FIXED": fixed}
            facts, code = build.compiled_kernel(function, values, constants, target, shape)
            more = {"target": target, "source": digest(source)}
            kernels.append((kernel + suffix, (facts | more, code)))
    return kernels


def digest(name: str) -> str:
    """Return a digest of a source, by which the test finds data that was compiled from another text."""
    return hashlib.sha256(bad_cases.path_of(name).read_bytes()).hexdigest()[:16]


if __name__ == "__main__":
    sys.exit(reported(main))
