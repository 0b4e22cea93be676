"""Compile the Triton cases for every target, and keep the results as test data.

    python -m tests.guests.build                     # all targets; needs Triton
    python -m tests.guests.build --target sm_80 --only matmul

Writes one archive a target to `tests/interop/data`: PTX or code objects, and what a launch needs; and, for
sm_80, the PTX of `show`, a kernel that prints and asserts. A case that a target does not compile is listed,
not written; the exit status is then 1 unless `EXPECTED` names it.

The bytes depend on the kernels and on Triton's version only, not on the folders that the two lie in.

Not here: running the data (`tests/interop/test_interop_corpus.py`, `tests/interop/test_interop_output.py`).
"""

from __future__ import annotations

import io
import json
import re
import sys
import tarfile
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from interop import elements
from tests.guests import more_cases
from tests.guests.cases import Case, Data, Pointers, Value, kernel_of
from tools.arguments import command, library, reported

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

DATA: Final = Path(__file__).resolve().parents[2] / "tests" / "interop" / "data"
SHOW: Final = DATA / "printing" / "show.ptx"
TARGETS: Final = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_120", "gfx942", "gfx1100", "gfx1201")
EXPECTED: Final[Mapping[str, str]] = {
    "product_tf32 gfx1100": "RDNA has no matrix operation on tf32",
    "product_tf32 gfx1201": "RDNA has no matrix operation on tf32",
}
"""Case and target ("to_fp8 sm_80") -> why Triton does not compile it."""
_SHORT: Final = {
    "float32": "fp32", "float16": "fp16", "float64": "fp64", "bfloat16": "bf16", "float8_e4m3fn": "fp8e4nv",
    "float8_e5m2": "fp8e5", "int8": "i8", "int32": "i32", "int64": "i64", "uint32": "u32",
}  # fmt: skip
_DIVISIBLE: Final = 16
_ASSERT_FILE: Final = re.compile(r"(\.b8 assertFile_\d+)\[\d+\] = \{([\d, ]+)\}")
_DEBUG: Final = re.compile(r"\t?\.section\s+\.debug_(?!str\b)\w+\s*\{.*?\n\t?\}", re.DOTALL)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = command("tests.guests.build", __doc__)
    parser.add_argument("--target", action="append", choices=TARGETS, help="one of the targets; repeatable")
    parser.add_argument("--only", default="", help="cases whose name contains this text; others are kept")
    options = parser.parse_args(argv)
    library(
        "triton", cure="pip install 'triton>=3.6'"
    )  # without it every case would fail, and empty the archives
    failed = 0
    for target in options.target or TARGETS:
        path = DATA / f"triton_{target}.tar.xz"
        kept = read(path) if options.only and path.exists() else {}
        for case in more_cases.ALL:
            if options.only not in case.name:
                continue
            try:
                kept[case.name] = compiled(case, target)
            except Exception as error:  # noqa: BLE001 - Triton's errors have no common class
                reason = EXPECTED.get(f"{case.name} {target}")
                failed += reason is None
                print(f"{case.name} {target}: {reason or error!r}"[:300], file=sys.stderr)
        write(path, kept.items())
        print(f"{path.name}: {len(kept)} kernels, {path.stat().st_size} bytes")
    if "sm_80" in (options.target or TARGETS) and options.only in SHOW.stem:
        kernel = getattr(import_module("tests.guests.triton_kernels"), SHOW.stem)
        values: dict[str, Value] = {"x": Data(np.zeros(32, np.int32)), "n": 32}
        SHOW.write_bytes(compiled_kernel(kernel, values, {}, "sm_80", (1, 2), asserts=True)[1])
    return 1 if failed else 0


def compiled(case: Case, target: str) -> tuple[dict[str, Any], bytes]:
    """Return (what a launch needs, PTX or code object) of a case."""
    values = case.make(np.random.default_rng(1)).values
    return compiled_kernel(kernel_of(case), values, case.constants, target, (case.warps, case.stages))


def compiled_kernel(
    kernel: Any,
    values: Mapping[str, Value],
    constants: Mapping[str, Any],
    target: str,
    warps_and_stages: tuple[int, int] = (4, 2),
    *,
    asserts: bool = False,
) -> tuple[dict[str, Any], bytes]:
    """Return (what a launch needs, PTX or code object) of a `@triton.jit` function with these arguments.

    `asserts` keeps `tl.device_assert` and adds Triton's own checks of overflow.
    """
    import triton  # noqa: PLC0415 - needed only to compile
    from triton.backends.compiler import GPUTarget  # noqa: PLC0415 - the same

    signature, constants, attributes = {}, dict(constants), {}
    for number, name in enumerate(kernel.arg_names):
        value = values.get(name)
        if name in constants or value == 1:
            signature[name] = "constexpr"
            constants.setdefault(name, value)
        else:
            signature[name] = type_of(value)
            if isinstance(value, (Data, Pointers)) or (isinstance(value, int) and value % _DIVISIBLE == 0):
                attributes[number,] = [["tt.divisibility", _DIVISIBLE]]
    source = triton.compiler.ASTSource(kernel, signature, constants, attributes)
    nvidia = target.startswith("sm_")
    warps, stages = warps_and_stages
    gpu = (
        GPUTarget("cuda", int(target[3:]), 32)
        if nvidia
        else GPUTarget("hip", target, 64 if target.startswith("gfx9") else 32)
    )
    options = {"num_warps": warps, "num_stages": stages, "enable_fp_fusion": True, "debug": asserts}
    name_files_shortly(kernel.__module__)
    made = triton.compile(source, target=gpu, options=options)
    facts = {
        "entry": made.metadata.name,
        "shared": made.metadata.shared,
        "scratch": getattr(made.metadata, "global_scratch_size", 0),
        "threads": made.metadata.num_warps * gpu.warp_size,
        "parameters": [name for name, kind in signature.items() if kind != "constexpr"],
    }
    return facts, tidy(made.asm["ptx"]).encode() if nvidia else made.asm["hsaco"]


def name_files_shortly(module: str) -> None:
    """Make line numbers of a module's kernels name "tests/guests/..." and "triton/...", wherever both lie.

    A name of another length would move everything behind it in a code object.
    """
    import triton  # noqa: PLC0415 - needed only to compile

    roots = Path(__file__).parents[2], Path(triton.__file__).parents[1]
    used = [one for name, one in sys.modules.items() if name == module or name.startswith("triton.language")]
    for function in (value for one in used for value in vars(one).values()):
        if isinstance(function, triton.JITFunction):
            for root in roots:
                function.file_name = function.file_name.removeprefix(f"{root}/")


def type_of(value: object) -> str:
    """Return Triton's type of an argument."""
    if isinstance(value, Pointers):
        return "*i64"
    if isinstance(value, Data):
        return f"*{_SHORT[elements.name(value.kind)]}"
    return "fp32" if isinstance(value, float) else "i32"


def tidy(ptx: str) -> str:
    """Return PTX without debug sections but names, and without the path of the sources; `.loc` stays."""
    ptx = _ASSERT_FILE.sub(_without_folder, _DEBUG.sub("", ptx).replace(", debug", ""))
    return re.sub(r'(\.file\s+\d+\s+")[^"]*/([^"/]+")', r"\1\2", ptx)


def _without_folder(found: re.Match[str]) -> str:
    """Return the declaration of an assertion's file, as the bytes of its name, with the name alone."""
    name = bytes(map(int, found[2].split(","))).rpartition(b"/")[2]
    return f"{found[1]}[{len(name) + 1}] = {{{', '.join(map(str, name))}}}"


def write(path: Path, kernels: Iterable[tuple[str, tuple[dict[str, Any], bytes]]]) -> None:
    """Write an archive whose bytes depend on the contents only."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:xz", preset=9) as archive:
        for name, (facts, code) in sorted(kernels):
            for suffix, data in ((".json", json.dumps(facts, sort_keys=True).encode()), (".code", code)):
                entry = tarfile.TarInfo(name + suffix)
                entry.size = len(data)
                archive.addfile(entry, io.BytesIO(data))


def read(path: Path) -> dict[str, tuple[dict[str, Any], bytes]]:
    """Return the contents of an archive: case -> (facts, code)."""
    with tarfile.open(path) as archive:
        files = {one.name: content.read() for one in archive if (content := archive.extractfile(one))}
    names = sorted(name.removesuffix(".json") for name in files if name.endswith(".json"))
    return {name: (json.loads(files[f"{name}.json"]), files[f"{name}.code"]) for name in names}


if __name__ == "__main__":
    sys.exit(reported(main))
