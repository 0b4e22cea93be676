"""Compile the kernels with one mistake each, broken and fixed, and keep the PTX as test data.

    python -m tools.guests.build_bad              # needs hcq[cuda]
    python -m tools.guests.build_bad --triton     # needs Triton

Writes one archive for each source to `tests/interop/data`, with the modules "NAME" and "NAME.fixed" of each
kernel. Not here: running them (`tools.guests.bad_run`).
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from interop import cuda
from tools.guests import bad_cases, build, cases, split

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

TARGETS: Final = {"hopper": "sm_90a", "pipelines": "sm_90a"}
"""Source -> target; the others are for sm_80."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.guests.build_bad", description=__doc__)
    parser.add_argument("--triton", action="store_true", help="the kernels of Triton, not those of CUDA C++")
    triton = parser.parse_args(argv).triton
    for name, launches in bad_cases.LAUNCHES.items():
        if (name == bad_cases.TRITON) != triton:
            continue
        path = bad_cases.path_of(name)
        if triton:
            _write(name, _triton(launches))
            continue
        text, target = path.read_text(), TARGETS.get(name, "sm_80")
        kernels = []
        for suffix, defined in (("", "-DBROKEN"), (".fixed", "-DFIXED")):
            flags = [f"-I{bad_cases.SOURCES}", defined]
            parts = split.items(build.tidy(cuda.to_ptx(text, target, name=path.name, options=flags)))
            for kernel in launches:
                facts = {"target": target, "source": digest(name)}
                kernels.append((kernel + suffix, (facts, split.module_of(parts, kernel).encode())))
        _write(name, kernels)
    return 0


def _write(name: str, kernels: list[tuple[str, tuple[dict[str, Any], bytes]]]) -> None:
    kept = build.DATA / f"bad_{name}.tar.xz"
    build.write(kept, kernels)
    print(f"{kept.name}: {len(kernels)} kernels, {kept.stat().st_size} bytes")


def _triton(launches: Mapping[str, bad_cases.Launch]) -> list[tuple[str, tuple[dict[str, Any], bytes]]]:
    """Return Triton's kernels for sm_80, broken and right."""
    from tools.guests import bad_triton  # noqa: PLC0415 - needs Triton

    kernels = []
    for suffix, fixed in (("", False), (".fixed", True)):
        for kernel, launch in launches.items():
            function = getattr(bad_triton, kernel)
            values = {
                name: one if isinstance(one, (int, float)) else cases.Data(np.zeros(1, one.dtype))
                for name, one in zip(function.arg_names, launch.arguments, strict=False)
            }
            constants = {**launch.constants, "FIXED": fixed}
            facts, code = build.compiled_kernel(function, values, constants, "sm_80")
            more = {"target": "sm_80", "source": digest(bad_cases.TRITON)}
            kernels.append((kernel + suffix, (facts | more, code)))
    return kernels


def digest(name: str) -> str:
    """Return a digest of a source, by which the test finds data that was compiled from another text."""
    return hashlib.sha256(bad_cases.path_of(name).read_bytes()).hexdigest()[:16]


if __name__ == "__main__":
    sys.exit(main())
