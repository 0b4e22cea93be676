"""Compile the CUDA C++ kernels with one mistake each, broken and fixed, and keep the PTX as test data.

    python -m tools.guests.build_bad

Needs `pip install 'hcq[cuda]'`. Writes one archive a source to `tests/interop/data`, with the modules "NAME"
and "NAME.fixed". Not here: running them (`tools.guests.bad_run`).
"""

from __future__ import annotations

import hashlib
import sys
from typing import Final

from interop import cuda
from tools.guests import bad_cases, build, split

TARGETS: Final = {"hopper": "sm_90a"}
"""Source -> target; the others are for sm_80."""


def main() -> int:
    """Compile all sources; return the exit status."""
    for name, launches in bad_cases.LAUNCHES.items():
        path = bad_cases.SOURCES / f"{name}.cu"
        text, target = path.read_text(), TARGETS.get(name, "sm_80")
        kernels = []
        for suffix, defined in (("", "-DBROKEN"), (".fixed", "-DFIXED")):
            flags = [f"-I{bad_cases.SOURCES}", defined]
            parts = split.items(build.tidy(cuda.to_ptx(text, target, name=path.name, options=flags)))
            for kernel in launches:
                facts = {"target": target, "source": digest(name)}
                kernels.append((kernel + suffix, (facts, split.module_of(parts, kernel).encode())))
        kept = build.DATA / f"bad_{name}.tar.xz"
        build.write(kept, kernels)
        print(f"{kept.name}: {len(kernels)} kernels, {kept.stat().st_size} bytes")
    return 0


def digest(name: str) -> str:
    """Return a digest of a source, by which the test finds data that was compiled from another text."""
    return hashlib.sha256((bad_cases.SOURCES / f"{name}.cu").read_bytes()).hexdigest()[:16]


if __name__ == "__main__":
    sys.exit(main())
