"""Run the kept kernels of Triton and CUDA C++ on every emulated GPU with all checks, and compare with NumPy.

    python -m tests.guests.corpus                 # every kernel on every target that has it
    python -m tests.guests.corpus --target sm_86 --only scan --unchecked
    python -m tests.guests.corpus --rebuild       # compile all of them first: needs hcq[triton,cuda]

Prints each kernel that differs or has a finding, and a line for each target with the time of the processors,
translation included. Exit status 1 if there is one.
`--rebuild` is a nightly command: it writes the data in `tests/interop/data` anew, prints which files
changed, and runs the kernels with mistakes, too. With the same compilers none changes
(Triton 3.9.0, NVRTC 13.5).

Not here: the cases (`cases`, `more_cases`, `cuda_cases`, `cuda_more_cases`), kernels with mistakes
(`bad_run`).
"""

from __future__ import annotations

import contextlib
import functools
import io
import math
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

import hcq
import interop
from hcq.config import override
from interop import sanitize
from tests.guests import bad_run, build, build_bad, build_cuda, more_cases
from tests.guests.cases import Data, placed
from tests.guests.tutorials import compare
from tools.arguments import command, reported

if TYPE_CHECKING:
    from collections.abc import Sequence

TRITON: Final = {target: f"{'nv' if target[0] == 's' else 'amd'}-emu:{target}" for target in build.TARGETS}
"""Target of Triton -> emulated GPU."""
CUDA: Final = {target: f"nv-emu:{target.removesuffix('a')}" for target in build_cuda.TARGETS}
"""Target of NVRTC -> emulated GPU."""
TRITON_CASES: Final = {case.name: case for case in more_cases.ALL}
LIBRARIES: Final = {Path(source).stem: cases for source, cases in build_cuda.LIBRARIES.items()}
"""Archive of CUDA C++ kernels of all targets of NVRTC -> its cases."""
CUDA_CASES: Final = {
    case.name: case for cases in (*build_cuda.SOURCES.values(), *LIBRARIES.values()) for case in cases
}
REFUSED: Final = {"recursion": "how much stack"}
"""CUDA C++ kernel -> the part that is not supported, named by the refusal."""
FOUND: Final = dict.fromkeys(("cub_warp_merge_sort", "cutlass_f16"), "read of uninitialized memory")
"""Kernel -> what the checks find in it, rightly, in values that it drops.

CUB's merge reads one key behind the last; CUTLASS's main loop reads the stage behind the last.
"""


@functools.cache
def archive(name: str) -> dict[str, tuple[dict[str, Any], bytes]]:
    """Return the kept kernels of "triton_TARGET", "cuda_TARGET" or "LIBRARY_TARGET": name -> facts, code."""
    library = next((one for one in LIBRARIES if name.startswith(f"{one}_")), None)
    if library is not None:
        target = name.removeprefix(f"{library}_")
        kept = build.read(build.DATA / f"{library}.tar.xz").items()
        return {key.partition("@")[0]: one for key, one in kept if key.endswith(f"@{target}")}
    return build.read(build.DATA / f"{name}.tar.xz")


def language_of(name: str) -> str:
    """Return the archive of a kernel of CUDA C++: "cuda", or the library that has it."""
    return next((one for one, cases in LIBRARIES.items() if name in {case.name for case in cases}), "cuda")


def run_triton(device: hcq.Device, name: str, target: str) -> str:
    """Launch one kernel of Triton; return how it differs from NumPy, or ""."""
    facts, code = archive(f"triton_{target}")[name]
    case = TRITON_CASES[name].make(np.random.default_rng(1))
    values = placed(case, lambda values, kind: interop.array(device, values, kind))
    kernel = interop.load(device, code, entry=facts["entry"])
    arguments: list[object] = [values[key] for key in facts["parameters"]]
    scratch = device.alloc(facts["scratch"] * math.prod(case.grid)) if facts["scratch"] else None
    arguments += [scratch, None][: len(kernel.signature.parameters) - len(arguments)]
    kernel.launch(*arguments, groups=case.grid, threads=facts["threads"], shared=facts["shared"])
    seen = {key: values[key].numpy() for key in case.expected}
    return str(compare(case.expected, seen, case.tolerance).get("error", ""))


def run_cuda(device: hcq.Device, name: str, target: str) -> str:
    """Launch one kernel of CUDA C++; return how its results or its text differ, or ""."""
    case = CUDA_CASES[name]
    given, expected = case.make(np.random.default_rng(1))
    values = {
        key: interop.array(device, one.values, one.kind) if isinstance(one, Data) else one
        for key, one in given.items()
    }
    kernel = interop.load(device, archive(f"{language_of(name)}_{target}")[name][1], entry=name)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        kernel.launch(
            *values.values(), groups=case.grid, threads=case.threads, shared=case.shared,
            cluster=case.cluster, cooperative=case.cooperative,
        ).wait()  # fmt: skip
        device.sync()
    if sorted(printed.getvalue().splitlines()) != sorted(case.text.splitlines()):
        return f"printed {printed.getvalue()!r}"
    seen = {key: values[key].numpy().reshape(wanted.shape) for key, wanted in expected.items()}
    return str(compare(expected, seen, case.tolerance).get("error", ""))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = command("tests.guests.corpus", __doc__)
    parser.add_argument(
        "--target", action="append", choices=sorted({*TRITON, *CUDA}), help="one of the targets; repeatable"
    )
    parser.add_argument("--only", default="", help="kernels whose name contains this text")
    parser.add_argument("--unchecked", action="store_true", help="without races and the other checks")
    parser.add_argument("--rebuild", action="store_true", help="compile all kernels first")
    options = parser.parse_args(argv)
    if not any(_chosen(language, target, options.only) for language, target in _places(options.target)):
        parser.error(f"--only: no kernel's name contains {options.only!r}")
    if options.rebuild and _rebuild():
        return 1
    bad = bad_run.main([]) if options.rebuild else 0
    for (language, target), name in _places(options.target).items():
        bad += _run(language, target, name, options.only, checked=not options.unchecked)
    return 1 if bad else 0


def _places(chosen: Sequence[str] | None) -> dict[tuple[str, str], str]:
    """Return (language, target) -> the device that runs its kernels; `chosen` None: of all targets."""
    every = {("triton", target): name for target, name in TRITON.items()}
    every |= {(one, target): name for one in ("cuda", *LIBRARIES) for target, name in CUDA.items()}
    return {key: name for key, name in every.items() if key[1] in (chosen or (key[1],))}


def _chosen(language: str, target: str, only: str) -> list[str]:
    """Return the kernels of an archive whose name contains `only`."""
    return [one for one in archive(f"{language}_{target}") if only in one]


def _rebuild() -> int:
    """Compile all kernels, and print which files changed; return the exit status."""
    before = _kept()
    status = build.main([]) or build_cuda.main([]) or build_bad.main([]) or build_bad.main(["--triton"])
    after = _kept()
    others = [name for name, data in after.items() if before.get(name) != data]
    print(f"{len(others)} of {len(after)} files of data changed: {', '.join(others) or 'none'}", flush=True)
    return status


def _kept() -> dict[str, bytes]:
    """Return the files of compiled kernels by name."""
    compiled = (path for path in sorted(build.DATA.rglob("*")) if path.suffix in {".xz", ".ptx"})
    return {str(path.relative_to(build.DATA)): path.read_bytes() for path in compiled}


def _run(language: str, target: str, device_name: str, only: str, *, checked: bool) -> int:
    """Run the kernels of an archive; return how many differ or have findings."""
    names = _chosen(language, target, only)
    if not names:
        return 0
    bad, begun = 0, time.process_time()
    with override(emu_checked=checked, validate=True), contextlib.ExitStack() as devices:
        device = devices.enter_context(hcq.open(device_name))
        for name in names:
            problem = ""
            try:
                problem = (run_triton if language == "triton" else run_cuda)(device, name, target)
                if checked and name in FOUND:
                    problem = problem or f"the checks did not find: {FOUND[name]}"
            except hcq.DeviceFault as fault:
                problem = "\n".join(map(sanitize.text, sanitize.findings(fault))) or str(fault)
                if FOUND.get(name, "\0") in problem:
                    problem = ""
                device.recover()
            except hcq.HcqError as error:
                if REFUSED.get(name, "\0") not in str(error):
                    problem = f"{type(error).__name__}: {error}"
            if problem:
                bad += 1
                print(f"{language} {target} {name}: {problem}", flush=True)
    how = "with all checks" if checked else "without checks"
    right = f"{len(names) - bad} of {len(names)} right, {time.process_time() - begun:.1f} s of processors"
    print(f"{language} {target} on {device_name} {how}: {right}", flush=True)
    return bad


if __name__ == "__main__":
    sys.exit(reported(main))
