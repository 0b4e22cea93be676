"""Compile the kernels of other compilers that AMD tests run: Triton's and clang's code objects.

    PYTHON_WITH_TRITON -m tests.guests.build_amd triton
    python -m tests.guests.build_amd opencl --clang clang-19 --lld ld.lld-19
    python -m tests.guests.build_amd golden --listing FOLDER --clang clang-19

Writes `NAME_ARCH.hsaco` beside the sources in tests/drivers/amd/triton or tests/drivers/amd/opencl, and what a launch must
know of them in `kernels.json` there: arguments, waves, bytes of shared memory. Triton 3.9 comes from pip and compiles
without a GPU; clang is Debian's package clang-19 with lld-19. Not needed to run the tests.

Not here: running them (`tests/drivers/amd/guests.py`).
"""

# ruff: noqa: E501 - rows of tables read best on one line

from __future__ import annotations

import importlib
import itertools
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tools.arguments import command

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_TESTS: Final = Path(__file__).parents[2] / "tests/drivers/amd"
TRITON, OPENCL = _TESTS / "triton", _TESTS / "opencl"
GOLDEN: Final = Path(__file__).parents[2] / "tests/golden/amd_isa"
BENCH: Final = Path(__file__).parent / "bench/amd_kernels"
ARCHS: Final = {"gfx942": 64, "gfx1100": 32, "gfx1201": 32}
"""Targets and the lanes of their waves."""
_FEATURES: Final = {"gfx1201": "+real-true16"}
"""What makes LLVM name the halves of registers, which the hardware always has."""
_PRINTED: Final = re.compile(rb"^\t([a-z]\w+[^;\n]*?) *; ((?:[0-9A-F]{8} ?)+)$", re.MULTILINE)
_MORE_ARCHS: Final = {"gfx950": 64}
"""Targets that one kernel is compiled for, to be loaded, not run."""
_TRITON_S_OWN: Final = ("global_scratch", "profile_scratch")
"""Pointers that Triton adds behind a kernel's own arguments; no kernel here uses what they point to."""


@dataclass(frozen=True, slots=True)
class Guest:
    """A Triton kernel to compile."""

    function: str
    arguments: dict[str, str]
    """Name -> Triton's type; a pointer begins with `*`."""
    constants: dict[str, Any]
    warps: int = 4
    stages: int = 2
    archs: tuple[str, ...] = tuple(ARCHS)
    unit: tuple[str, ...] = ()
    """Arguments that are not known to be divisible by 16, pointers and strides aside."""


_MATMUL = ("m", "n", "k", "row_a", "row_b", "row_c")


def _matmul(
    inputs: str,
    output: str,
    tiles: tuple[int, int, int],
    *,
    stages: int = 2,
    archs: tuple[str, ...] = tuple(ARCHS),
) -> Guest:
    arguments = {"a": f"*{inputs}", "b": f"*{inputs}", "c": f"*{output}"} | dict.fromkeys(_MATMUL, "i32")
    m, n, k = tiles
    return Guest("matmul", arguments, {"M": m, "N": n, "K": k}, stages=stages, archs=archs)


def _attention(*, causal: bool) -> Guest:
    arguments = dict.fromkeys(("q", "k", "v", "out"), "*fp16") | {"length": "i32", "scale": "fp32"}
    return Guest(
        "attention", arguments, {"CAUSAL": causal, "M": 64, "N": 32, "D": 64}, unit=("length", "scale")
    )


GUESTS: Final = {
    "rowsum": Guest(
        "rowsum", {"x": "*fp32", "out": "*fp32", "n": "i32"}, {"BLOCK": 1024}, unit=("n",), archs=(*ARCHS, *_MORE_ARCHS)
    ),
    "add": Guest("add", {"x": "*fp32", "y": "*fp32", "out": "*fp32", "n": "i32"}, {"BLOCK": 1024}, unit=("n",)),
    "softmax": Guest("softmax", {"x": "*fp32", "out": "*fp32", "columns": "i32"}, {"BLOCK": 1024}, unit=("columns",)),
    "layer_norm": Guest(
        "layer_norm",
        dict.fromkeys(("x", "weight", "bias", "out", "mean", "scale"), "*fp32") | {"columns": "i32", "epsilon": "fp32"},
        {"BLOCK": 512}, unit=("columns", "epsilon"),
    ),
    "matmul": _matmul("fp16", "fp32", (64, 64, 32)),
    "matmul_pipelined": _matmul("fp16", "fp16", (64, 64, 32), stages=4),
    "matmul_bf16": _matmul("bf16", "fp32", (32, 64, 32)),
    "matmul_i8": _matmul("i8", "i32", (64, 32, 64)),
    "matmul_f32": _matmul("fp32", "fp32", (32, 32, 32)),
    "matmul_fp8": _matmul("fp8e4nv", "fp32", (32, 32, 64), archs=("gfx1201",)),
    "matmul_fp8_fnuz": _matmul("fp8e4b8", "fp32", (32, 32, 64), archs=("gfx942",)),
    "attention": _attention(causal=False),
    "attention_causal": _attention(causal=True),
    "scan": Guest("scan", {"x": "*fp32", "out": "*fp32", "n": "i32"}, {"BLOCK": 1024}, unit=("n",)),
    "histogram": Guest("histogram", {"x": "*i32", "counts": "*i32", "n": "i32"}, {"BLOCK": 1024, "BINS": 64}, unit=("n",)),
}  # fmt: skip


_OPENCL_ARGUMENTS: Final = {
    "saxpy": ["*fp32", "*fp32", "fp32", "i32"],
    "reduce": ["*fp32", "*fp32", "i32"],
    "scan": ["*i32", "*i32"],
    "transpose": ["*fp32", "*fp32", "i32", "i32"],
    "histogram": ["*i32", "*i8", "i32"],
    "places": ["*i32", "i32", "i32"],
    "collatz": ["*i32", "*i32", "i32"],
    "mix": ["*i64", "*i32", "i32"],
}


def _triton(names: list[str], listing: Path | None) -> dict[str, dict[str, Any]]:
    """Compile Triton's kernels; return what a launch must know, by file name."""
    os.environ |= {"TRITON_DISABLE_LINE_INFO": "1", "TRITON_DEFAULT_FP_FUSION": "1"}
    triton, backends = importlib.import_module("triton"), importlib.import_module("triton.backends.compiler")
    sys.path.insert(0, str(TRITON))
    functions = importlib.import_module("kernels")
    found = {}
    for name in names:
        guest = GUESTS[name]
        function = getattr(functions, guest.function)
        signature = dict(guest.arguments) | dict.fromkeys(guest.constants, "constexpr")
        place = {parameter: (number,) for number, parameter in enumerate(signature)}
        divisible = [place[p] for p in guest.arguments if p not in guest.unit]
        for arch in guest.archs:
            lanes = (ARCHS | _MORE_ARCHS)[arch]
            source = triton.compiler.ASTSource(
                function, signature, {place[c]: value for c, value in guest.constants.items()},
                {key: [["tt.divisibility", 16]] for key in divisible},
            )  # fmt: skip
            made = triton.compile(
                source, target=backends.GPUTarget("hip", arch, lanes),
                options={"num_warps": guest.warps, "num_stages": guest.stages},
            )  # fmt: skip
            (TRITON / f"{name}_{arch}.hsaco").write_bytes(made.asm["hsaco"])
            if listing is not None:
                (listing / f"{name}_{arch}.s").write_text(made.asm["amdgcn"])
            print(
                f"{name}_{arch}: {len(made.asm['hsaco'])} bytes, {made.metadata.shared} shared",
                file=sys.stderr,
            )
            found[f"{name}_{arch}"] = {
                "file": f"{name}_{arch}.hsaco",
                "kernel": guest.function,
                "arguments": [*guest.arguments.values(), *("*i8" for _ in _TRITON_S_OWN)],
                "threads": guest.warps * lanes,
                "shared_bytes": made.metadata.shared,
            }
    return found


def _opencl(clang: str, linker: str) -> dict[str, dict[str, Any]]:
    """Compile the kernels in OpenCL C, one code object a target: those of tests, and of the benchmark."""
    for folder, arch in itertools.product((OPENCL, BENCH), ARCHS):
        made = folder / f"kernels_{arch}.hsaco"
        thing = made.with_suffix(".o")
        subprocess.run(
            [
                clang, "-x", "cl", "-cl-std=CL2.0", "-target", "amdgcn-amd-amdhsa", f"-mcpu={arch}", "-O2", "-nogpulib",
                "-ffp-contract=off", "-Xclang", "-finclude-default-header", "-c", str(folder / "kernels.cl"), "-o", str(thing),
            ],
            check=True,
        )  # fmt: skip
        subprocess.run([linker, "-shared", "--strip-debug", str(thing), "-o", str(made)], check=True)
        thing.unlink()
        print(f"{made.parent.name}/{made.name}: {made.stat().st_size} bytes", file=sys.stderr)
    return {
        f"{name}_{arch}": {"file": f"kernels_{arch}.hsaco", "kernel": name, "arguments": arguments, "shared_bytes": 0}
        for name, arguments in _OPENCL_ARGUMENTS.items() for arch in ARCHS
    }  # fmt: skip


_FILL: Final = bytes.fromhex("000080BF")
"""s_nop 0, which fills the code where a loop is aligned."""


def _shapes(pairs: Iterable[tuple[str, str]]) -> str:
    """Return lines of dwords and text, one for each text that differs in more than its numbers."""
    found: dict[str, tuple[str, str]] = {}
    for code, text in pairs:
        if "@" in text:  # an operand that the linker fills in
            continue
        found.setdefault(re.sub(r"\d+", "#", text), (code, text))
    return "".join(f"{code}: {text}\n" for code, text in sorted(found.values(), key=lambda pair: pair[1]))


def _of_triton(listing: Path, arch: str) -> Iterator[tuple[str, str]]:
    """Yield dwords and text of Triton's instructions, branches aside: the text is its LLVM's assembly.

    The decoder says where one instruction ends; where it is wrong the texts that follow are others'.
    """
    from emulator.amd.isa import programs  # noqa: PLC0415 - Triton's Python lacks what this imports
    from emulator.amd.isa.decode import one  # noqa: PLC0415

    for name in sorted(listing.glob(f"*_{arch}.s")):
        code_object = TRITON / name.with_suffix(".hsaco").name
        (kernel,) = programs.kernels(code_object.read_bytes(), arch).values()
        at = 0
        for line in name.read_text().split("\n.Lfunc_end0", 1)[0].splitlines():
            text = line.partition(";")[0]
            if not re.match(r"\t[a-z]", text):
                continue
            while not text.startswith("\ts_nop") and kernel.code[at : at + 4] == _FILL:
                at += 4
            size = one(kernel.code, at, kernel.target, lanes=kernel.lanes, kernel=code_object.name).size
            words = [kernel.code[k : k + 4][::-1].hex().upper() for k in range(at, at + size, 4)]
            at += size
            if ".L" not in text:
                yield " ".join(words), " ".join(text.split())


def _of_llvm(text: str, arch: str) -> Iterator[tuple[str, str]]:
    """Yield dwords and text of each instruction that llvmlite's LLVM makes of IR, branches to open targets aside."""
    import llvmlite.binding as llvm  # noqa: PLC0415 - Triton's Python lacks it

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    features = ",".join(filter(None, ("+dumpcode", _FEATURES.get(arch, ""))))
    triple = llvm.Target.from_triple("amdgcn-amd-amdhsa")
    machine = triple.create_target_machine(cpu=arch, features=features, opt=2)
    module = llvm.parse_assembly(text)
    module.verify()
    for read, code in _PRINTED.findall(machine.emit_object(module)):
        if b'""' not in read:
            yield code.decode().strip(), " ".join(read.decode().split())


def _golden(listing: Path, clang: str) -> None:
    """Write golden text of the guests' instructions: Triton's by its listing, OpenCL C's by the LLVM of llvmlite."""
    for arch in ARCHS:
        (GOLDEN / f"{arch}_triton.txt").write_text(_shapes(_of_triton(listing, arch)))
        pairs: list[tuple[str, str]] = []
        for folder in (OPENCL, BENCH):
            made = subprocess.run(
                [
                    clang, "-x", "cl", "-cl-std=CL2.0", "-target", "amdgcn-amd-amdhsa", f"-mcpu={arch}", "-O2", "-nogpulib", "-S",
                    "-emit-llvm", "-ffp-contract=off", "-Xclang", "-finclude-default-header", str(folder / "kernels.cl"), "-o", "-",
                ],
                check=True, capture_output=True, text=True,
            )  # fmt: skip
            plain = re.sub(r'"target-(cpu|features)"="[^"]*"', "", made.stdout)  # those hide what `_of_llvm` asks for
            pairs += _of_llvm(plain, arch)
        (GOLDEN / f"{arch}_opencl.txt").write_text(_shapes(pairs))


def main(argv: Sequence[str] | None = None) -> int:
    """Compile what is named and write the tables."""
    parser = command("tests.guests.build_amd", __doc__)
    parser.add_argument("what", choices=("triton", "opencl", "golden"), help="what is made")
    parser.add_argument("names", nargs="*", metavar="KERNEL", help="Triton's kernels to compile (all)")
    parser.add_argument("--listing", type=Path, metavar="FOLDER", help="write Triton's assembly there")
    parser.add_argument("--clang", default="clang-19", help="clang 19 (default: %(default)s)")
    parser.add_argument("--lld", default="ld.lld-19", help="its linker (default: %(default)s)")
    chosen = parser.parse_args(argv)
    if chosen.what == "golden":
        _golden(chosen.listing, chosen.clang)
        return 0
    folder = TRITON if chosen.what == "triton" else OPENCL
    made = (
        _triton(chosen.names or list(GUESTS), chosen.listing)
        if chosen.what == "triton"
        else _opencl(chosen.clang, chosen.lld)
    )
    table = folder / "kernels.json"
    known = json.loads(table.read_text()) if table.exists() and chosen.names else {}
    rows = (f"{json.dumps(name)}: {json.dumps(what)}" for name, what in sorted((known | made).items()))
    table.write_text("{\n" + ",\n".join(rows) + "\n}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
