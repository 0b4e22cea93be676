"""Print what the compiler makes for GPUs: registers, shared memory, spills, matrix operations, conflicts.

    python -m tools.gpu_kernels [--arch sm_90a,gfx1100] [--kernel matmul_f16] [--size 1024] [--plans] [--json]
    python -m tools.gpu_kernels --check                  # also run small kernels on the emulated GPUs
    python -m tools.gpu_kernels --count 256              # also count what kernels of that size execute there
    python -m tools.gpu_kernels --plans --listing kernels    # loop nests, and a file of assembly for each

The table has a row for each kernel (products, a softmax, a layer norm, a transpose, attention of SIZE tokens
in two heads of 64, also causal) and architecture.
Registers and spills come from the assembler: records of the cubin, or LLVM's metadata of AMD code; -1 where
no assembler for PTX is installed. Bank conflicts are the passes of a warp's accesses to shared memory beyond
the least number, each access counted once (`tools.bank_conflicts`).

`--check` compares with float64. It prints the largest error in units of the last place of the largest result.

`--count SIZE` prints what kernels of that size execute on the emulated GPUs. Three columns are bytes of
global memory: asked for by lanes, moved by requests in whole sectors or lines, and different bytes touched.
The fourth has the cycles of shared memory that bank conflicts cost, of all its cycles.

`--listing` writes KERNEL_ARCH.s for AMD GPUs, and KERNEL_ARCH.ptx for NVIDIA's. Where the assembler is
installed it also writes KERNEL_ARCH.cubin; `nvdisasm -c` of a CUDA toolkit shows its machine code.

Exits with 1 if a kernel spills or an error is above the kernel's bound.

Not here: times (`tools.performance`). Next: `compiler.pipeline`, whose steps run here as in a compilation,
and `compiler.plan.shared_product`, which plans the products.
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from compiler import llvm
from compiler.dtype import DType, dtypes
from compiler.pipeline import steps
from compiler.schedule.scheduler import limits_on, schedule
from compiler.targets import target_of
from compiler.targets.nvptx.assembler import assemble, available
from compiler.targets.nvptx.target import ptx
from drivers.nv.cubin import read
from frontend import Tensor
from frontend.device import Device
from frontend.evaluation.expr import uops
from hcq.counters import counting
from tools.arguments import command, made_folder, natural, positive, reported, some_of
from tools.bank_conflicts import conflicts
from tools.bench.compiled import OURS, REFERENCE

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from compiler.ir.uop import UOp
    from compiler.targets.shared.target import Target

DEVICES = {
    "sm_80": "nv-emu:sm_80", "sm_90a": "nv-emu", "sm_120a": "nv-emu:sm_120",
    "gfx942": "amd-emu:gfx942", "gfx1100": "amd-emu:gfx1100", "gfx1201": "amd-emu:gfx1201",
}  # fmt: skip
"""Architecture -> the emulated GPU that runs it."""
TYPES = {"f32": dtypes.float32, "f16": dtypes.float16, "bf16": dtypes.bfloat16}
GRADIENTS = {"query_gradient_f16": 0, "key_gradient_f16": 1}
"""Kernel -> the operand of causal attention of which it is the gradient."""
KERNELS = (*[f"matmul_{kind}" for kind in TYPES], "softmax", "layernorm", "transpose", "attention_f16",
           "causal_f16", *GRADIENTS)  # fmt: skip
BOUND_ULP = {"matmul_f32": 16.0, "matmul_f16": 1.0, "matmul_bf16": 1.0, "softmax": 4.0, "layernorm": 8.0,
             "transpose": 0.0, "attention_f16": 2.0, "causal_f16": 2.0,
             **dict.fromkeys(GRADIENTS, 2.0)}  # fmt: skip
"""The largest error that `--check` allows a kernel, in units of the last place of its largest result."""
HEADS, HEAD = 2, 64
"""Heads of attention, and values of a row of each."""
CHECKED = 80
"""The size of the kernels that `--check` runs."""
_MATRIX = re.compile(r"mma\.sync|wgmma\.mma_async|v_wmma|v_mfma")


@dataclass(frozen=True, slots=True)
class Traffic:
    """What the kernels of an expression did to memory, as the emulated GPU counted it."""

    size: int
    """Rows and columns of the operands."""
    asked: int
    """Bytes of global memory that lanes asked for."""
    moved: int
    """Bytes that requests moved, in whole sectors or lines."""
    touched: int
    """Different bytes that were read, plus different bytes that were written."""
    cycles: int
    """Cycles of shared memory."""
    conflicts: int
    """The part of `cycles` that bank conflicts cost."""


@dataclass(frozen=True, slots=True)
class Made:
    """The figures of one kernel on one architecture."""

    kernel: str
    arch: str
    groups: tuple[int, int, int]
    threads: int
    registers: int
    """Registers of a thread: vector registers on AMD; -1 without an assembler for PTX."""
    shared_bytes: int
    """Bytes of shared memory of a workgroup; -1 without an assembler for PTX."""
    private_bytes: int
    """Bytes of private memory of a thread, which spills need; -1 without an assembler for PTX."""
    matrix: int
    """Matrix instructions in the listing."""
    conflicts: int
    """Passes of a warp's accesses to shared memory beyond the least number."""
    passes: int
    """All passes of these accesses, conflicts included."""
    plan: str
    """The loop nest as text."""
    ulp: float | None = None
    """The largest error in units of the last place of the largest result; None without `--check`."""
    counted: Traffic | None = None
    """None without `--count`."""


@dataclass(frozen=True, slots=True)
class Listing:
    """The code of a kernel: PTX or AMD's assembly as text, and the cubin.

    The cubin is empty for AMD, and without an assembler for PTX.
    """

    suffix: str
    """".ptx" or ".s"."""
    text: str
    cubin: bytes


def graph(kernel: str, size: int, device: str = "cpu") -> tuple[Tensor, np.ndarray]:
    """Return the expression of a kernel of `KERNELS` over random matrices, and its result in float64.

    The operands are rounded to the kernel's type first, so the result is exact for them up to float64.
    """
    rng = np.random.default_rng(0)
    if kernel in ("attention_f16", "causal_f16", *GRADIENTS):
        return _attention(rng, size, device, causal=kernel != "attention_f16", of=GRADIENTS.get(kernel))
    values = [rng.standard_normal((size, size)).astype(np.float32) for _ in range(2)]
    name, _, kind = kernel.partition("_")
    dtype = TYPES[kind or "f32"]
    operands = [_stored(v, dtype, device) for v in values[: 2 if name == "matmul" else 1]]
    exact = [t.cast("float32").numpy().astype(np.float64) for t in operands]
    work = "layer norm" if name == "layernorm" else name
    return OURS[work](*operands), REFERENCE[work](*exact)


def _attention(
    rng: np.random.Generator, size: int, device: str, *, causal: bool, of: int | None
) -> tuple[Tensor, np.ndarray]:
    """Return attention of float16, or its gradient for operand `of`, and the result in float64."""
    values = [rng.standard_normal((1, HEADS, size, HEAD)).astype(np.float32) for _ in range(4)]
    q, k, v, g = every = [_stored(x, dtypes.float16, device) for x in values]
    a, b, c, d = (t.cast("float32").numpy().astype(np.float64) for t in every)
    scores = a @ b.swapaxes(-1, -2) / HEAD**0.5
    if causal:
        scores = np.where(np.tril(np.ones((size, size), bool)), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights = weights / weights.sum(-1, keepdims=True)
    if of is None:
        return q.scaled_dot_product_attention(k, v, is_causal=causal), weights @ c
    every[of].requires_grad_()
    (q.scaled_dot_product_attention(k, v, is_causal=causal) * g).sum().backward()
    of_weights = d @ c.swapaxes(-1, -2)
    of_scores = weights * (of_weights - (of_weights * weights).sum(-1, keepdims=True)) / HEAD**0.5
    exact = (of_scores @ b, of_scores.swapaxes(-1, -2) @ a)[of]
    gradient = every[of].grad
    assert gradient is not None
    return gradient, exact


def _stored(values: np.ndarray, dtype: DType, device: str) -> Tensor:
    tensor = Tensor(values, device=device)
    return (tensor if dtype is dtypes.float32 else tensor.cast(dtype.name)).realize()


def kernel_of(kernel: str, size: int, target: Target) -> UOp:
    """Return the AST of a kernel for operands of a size."""
    tensor, _ = graph(kernel, size)
    items = schedule(uops([(tensor.expr, tuple(range(len(tensor.leaves))))]), limits=limits_on(target))
    return items[-1].ast


def made(kernel: str, arch: str, size: int) -> tuple[Made, Listing]:
    """Compile a kernel of square operands; return its figures and its code.

    Raises `CompileError` as `steps` does.
    """
    target = target_of(arch)
    ast = kernel_of(kernel, size, target)
    compiled = steps(ast, target)
    ir, plan = compiled.ir, compiled.plan
    found = conflicts(compiled.lines, target.warp)
    if arch.startswith("sm_"):
        text = ptx(ir, target.machine(), 0)
        code = assemble(text, arch) if available() else b""
        registers, shared, private = _cubin(code, compiled.name)
        shared += compiled.dynamic_bytes if code else 0
    else:
        text, code = llvm.emit_assembly(ir, target.machine(), level=0), b""
        registers, shared, private = (
            int(re.findall(rf"\.{word}:\s+(\d+)", text)[0])
            for word in ("vgpr_count", "group_segment_fixed_size", "private_segment_fixed_size")
        )
    figures = Made(
        kernel, arch, plan.launch()[0], plan.threads, registers, shared, private, len(_MATRIX.findall(text)),
        found.passes - found.least, found.passes, plan.text(),
    )  # fmt: skip
    return figures, Listing(".ptx" if arch.startswith("sm_") else ".s", text, code)


def _cubin(code: bytes, name: str) -> tuple[int, int, int]:
    """Return registers, shared bytes and local bytes of a kernel; (-1, -1, -1) for no code."""
    if not code:
        return -1, -1, -1
    _, _, kernel = read(code, name)
    return kernel.registers, kernel.shared_bytes, kernel.stack_bytes


def error(kernel: str, arch: str) -> float:
    """Run a small kernel on the emulated GPU; return its error in units of the last place."""
    tensor, wanted = graph(kernel, CHECKED, DEVICES[arch])
    got = tensor.cast("float32").numpy().astype(np.float64)
    digits = {"f16": 10, "bf16": 7}.get(kernel.rpartition("_")[2], 23)
    ulp = 2.0 ** (np.floor(np.log2(np.abs(wanted).max())) - digits)
    return float(np.abs(got - wanted).max() / ulp)


def traffic(kernel: str, arch: str, size: int) -> Traffic:
    """Count what a kernel of square operands does to memory on the emulated GPU."""
    tensor, _ = graph(kernel, size, DEVICES[arch])
    with counting(Device[DEVICES[arch]].hcq) as found:
        tensor.realize()
    every = list(found)
    return Traffic(
        size, sum(one.asked for one in every), sum(one.moved for one in every),
        sum(one.read + one.written for one in every),
        sum(access.units for one in every for access in one.shared.values()), sum(one.conflicts for one in
        every),
    )  # fmt: skip


def write(listing: Listing, path: Path) -> None:
    """Write PATH.ptx or PATH.s, and PATH.cubin."""
    path.with_suffix(listing.suffix).write_text(listing.text)
    if listing.cubin:
        path.with_suffix(".cubin").write_bytes(listing.cubin)


def row(m: Made) -> str:
    """Return a line of the table."""
    grid = "x".join(map(str, m.groups))
    ulp = "" if m.ulp is None else f" {m.ulp:.2f} |"
    if m.counted is not None:
        c = m.counted
        ulp += f" {c.asked:,} | {c.moved:,} | {c.touched:,} | {c.conflicts:,} of {c.cycles:,} |"
    return (
        f"| {m.kernel} | {m.arch} | {grid} of {m.threads} | {m.registers} | {m.shared_bytes} | "
        f"{m.private_bytes} | {m.matrix} | {m.conflicts} of {m.passes} |{ulp}"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return the exit status."""
    parser = command("tools.gpu_kernels", __doc__)
    parser.add_argument(
        "--arch", type=some_of(DEVICES), default=",".join(DEVICES), help="architectures (all)"
    )
    parser.add_argument("--kernel", type=some_of(KERNELS), default=",".join(KERNELS), help="kernels (all)")
    parser.add_argument(
        "--size", type=positive, default=1024, help="rows and columns of the operands (default 1024)"
    )
    parser.add_argument("--plans", action="store_true", help="also print the loop nest of each kernel")
    parser.add_argument("--check", action="store_true", help="also run small kernels and print their errors")
    parser.add_argument(
        "--count",
        type=natural,
        default=0,
        metavar="SIZE",
        help="also count what kernels of this size execute",
    )
    parser.add_argument(
        "--listing", type=made_folder, metavar="FOLDER", help="also write the assembly of each kernel"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(argv)
    results, good = [], True
    if not options.json:
        last = " ulp |" if options.check else ""
        last += " asked | moved | touched | cycles of conflicts |" if options.count else ""
        print(f"| kernel | arch | workgroups | registers | shared | spilled | matrix | conflicts |{last}")
        print("|---" * (8 + options.check + 4 * bool(options.count)) + "|")
    for kernel in options.kernel:
        for arch in options.arch:
            ulp = error(kernel, arch) if options.check else None
            counted = traffic(kernel, arch, options.count) if options.count else None
            figures, listing = made(kernel, arch, options.size)
            found = replace(figures, ulp=ulp, counted=counted)
            if options.listing:
                write(listing, options.listing / f"{kernel}_{arch}")
            good = good and found.private_bytes <= 0 and (ulp is None or ulp <= BOUND_ULP[kernel])
            results.append(asdict(found))
            if not options.json:
                print(row(found), flush=True)
                if options.plans:
                    print("\n".join([f"    {line}" for line in found.plan.splitlines()]))
    if options.json:
        print(json.dumps(results, indent=1))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(reported(main))
