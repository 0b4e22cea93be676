"""Time calibration kernels on a GPU beside the estimates of their counters: `python -m tools.calibrate --device nv`.

Each kernel is bound by one resource of the estimate: memory (copy, strided), arithmetic (fma), shared memory
without and with bank conflicts (shared, conflicts). The counts come from the emulated GPU of the same
architecture, which runs `COUNTED` workgroups; they are multiplied to the number of workgroups of the launch.
The command prints one line of JSON for each kernel: the shortest of the measured times, the estimate, and the
ratio of the two. On an emulated GPU the time is that of the emulation: `emulated` is true, and the ratio has
no meaning.

Not here: the rates behind the estimates (`emulator.shared.counts`). Next: docs/counters.md; `tools.hardware_run`,
which has this as a stage.
"""

# ruff: noqa: E501 - lines of IR read best on one line

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Final

import hcq
from compiler.llvm import emit_object
from compiler.targets import target_of
from compiler.targets.nvptx.assembler import assemble
from compiler.targets.nvptx.target import ptx
from emulator.devices import boards
from emulator.shared.counts import estimates
from hcq import ArgKind, ArgSlot, KernelImage, UnsupportedError, UsageError
from tools.arguments import command, device_name, positive, reported

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hcq import DeviceInfo
    from hcq.counters import Estimate

EMULATED: Final = {
    "sm_80": "nv-emu:sm_80", "sm_86": "nv-emu:sm_86", "sm_89": "nv-emu:sm_89", "sm_90a": "nv-emu:sm_90",
    "sm_120a": "nv-emu:sm_120", "gfx942": "amd-emu:gfx942", "gfx1100": "amd-emu:gfx1100",
    "gfx1201": "amd-emu:gfx1201",
}  # fmt: skip
"""Architecture -> the emulated GPU that counts its kernels."""
THREADS: Final = 256
"""Threads of a workgroup."""
GROUPS: Final = 8192
"""Workgroups of a timed launch."""
COUNTED: Final = 4
"""Workgroups of the launch that is counted."""
ROUNDS: Final = 64
"""Iterations of the kernels with a loop."""
_RUNS: Final = 5
_STRIDE: Final = 32
"""Elements between two accesses of the strided kernel: 128 bytes."""
_NV: Final = {
    "triple": "nvptx64-nvidia-cuda", "kernel": "ptx_kernel", "thread": "llvm.nvvm.read.ptx.sreg.tid.x",
    "group": "llvm.nvvm.read.ptx.sreg.ctaid.x", "attributes": "",
}  # fmt: skip
_AMD: Final = {
    "triple": "amdgcn-amd-amdhsa", "kernel": "amdgpu_kernel", "thread": "llvm.amdgcn.workitem.id.x",
    "group": "llvm.amdgcn.workgroup.id.x",
    "attributes": '"amdgpu-no-dispatch-ptr" "amdgpu-no-implicitarg-ptr" "amdgpu-no-queue-ptr" '
    '"amdgpu-no-dispatch-id" "amdgpu-flat-work-group-size"="256,256"',
}  # fmt: skip
_HEAD: Final = """target triple = "{triple}"
declare i32 @{thread}()
declare i32 @{group}()
declare float @llvm.fma.f32(float, float, float)
@tile = internal addrspace(3) global [4096 x float] poison, align 16
define {kernel} void @{name}(ptr addrspace(1) %out, ptr addrspace(1) %in, i32 %rounds) {attributes} {{
entry:
  %thread = call i32 @{thread}()
  %group = call i32 @{group}()
  %first = mul i32 %group, 256
  %i = add i32 %first, %thread
  %wide = zext i32 %i to i64
"""
_END: Final = "  ret void\n}\n"
_COPY: Final = """  %from = getelementptr <4 x float>, ptr addrspace(1) %in, i64 %wide
  %to = getelementptr <4 x float>, ptr addrspace(1) %out, i64 %wide
  %v = load <4 x float>, ptr addrspace(1) %from
  store <4 x float> %v, ptr addrspace(1) %to
"""
_RESULT: Final = """  %to = getelementptr float, ptr addrspace(1) %out, i64 %wide
  store float {value}, ptr addrspace(1) %to
"""
_STRIDED: Final = f"""  %far = mul i64 %wide, {_STRIDE}
  %from = getelementptr float, ptr addrspace(1) %in, i64 %far
  %v = load float, ptr addrspace(1) %from
""" + _RESULT.format(value="%v")


def _loop(before: str, start: Sequence[str], body: str, results: Sequence[str]) -> str:
    """Return IR of a loop over `%rounds` that carries floats %x0, %x1, ..., and stores the sum of the results.

    `before` is the IR before the loop, `start` the first values, `body` the IR of one iteration, `results` the
    names of the values that it carries on.
    """
    carried = "".join(
        f"  %x{n} = phi float [ {a}, %entry ], [ {b}, %loop ]\n"
        for n, (a, b) in enumerate(zip(start, results, strict=True))
    )
    sums, total = "", results[0]
    for n, one in enumerate(results[1:]):
        sums += f"  %sum{n} = fadd float {total}, {one}\n"
        total = f"%sum{n}"
    return (
        f"{before}  br label %loop\nloop:\n  %k = phi i32 [ 0, %entry ], [ %next, %loop ]\n{carried}{body}"
        "  %next = add i32 %k, 1\n  %more = icmp ult i32 %next, %rounds\n"
        f"  br i1 %more, label %loop, label %end\nend:\n{sums}{_RESULT.format(value=total)}"
    )


def _fma() -> str:
    chains, steps = 8, 4
    body, now = "", [f"%x{n}" for n in range(chains)]
    for step in range(steps):
        for n in range(chains):
            body += f"  %y{n}.{step} = call float @llvm.fma.f32(float {now[n]}, float %c, float %c)\n"
            now[n] = f"%y{n}.{step}"
    return _loop("  %c = uitofp i32 %thread to float\n", ["%c"] * chains, body, now)


def _shared(stride: int) -> str:
    body, total = "", "%x0"
    for n in range(8):
        body += (
            f"  %p{n} = getelementptr float, ptr addrspace(3) %place, i32 {n}\n"
            f"  %v{n} = load volatile float, ptr addrspace(3) %p{n}\n  %t{n} = fadd float {total}, %v{n}\n"
        )
        total = f"%t{n}"
    before = f"""  %word = mul i32 %thread, {stride}
  %inside = and i32 %word, 4064
  %low = and i32 %word, 31
  %at = or i32 %inside, %low
  %place = getelementptr float, ptr addrspace(3) @tile, i32 %at
  store float 1.0, ptr addrspace(3) %place
"""
    return _loop(before, ["0.0"], body, [total])


KERNELS: Final = {
    "copy": _COPY, "strided": _STRIDED, "fma": _fma(), "shared": _shared(1), "conflicts": _shared(32),
}  # fmt: skip


def image(name: str, info: DeviceInfo) -> KernelImage:
    """Return the calibration kernel `name` for a GPU.

    Raises `UnsupportedError` for an architecture without an emulated GPU, the CPU's included.
    """
    nvidia = info.arch.startswith("sm_")
    if info.arch not in EMULATED:
        raise UnsupportedError(f"{info.arch} has no emulated GPU to count on; there are {', '.join(EMULATED)}")
    words = _NV if nvidia else _AMD
    ir = _HEAD.format(name=name, **words) + KERNELS[name] + _END
    machine = target_of(info.arch).machine()
    code = assemble(ptx(ir, machine, 0), info.arch) if nvidia else emit_object(ir, machine)
    pointers = [ArgSlot(text, ArgKind.POINTER, 8 * n, 8) for n, text in enumerate(("out", "in"))]
    return KernelImage(
        name=name, arch=info.arch, code=code, args=(*pointers, ArgSlot("rounds", ArgKind.INT, 16, 4)),
        kernarg_size=24, shared_bytes=0, max_threads=THREADS,
    )  # fmt: skip


def launched(gpu: hcq.Device, name: str, groups: int, *, runs: int) -> float:
    """Run a kernel once, and then `runs` times; return the shortest time of the `runs`.

    With `runs` 0 it is the time of the first run. Times are in seconds, by the device's clock.
    """
    program = gpu.load(image(name, gpu.info))
    out, source = (gpu.alloc(size) for size in (16 * THREADS * groups, 4 * _STRIDE * THREADS * groups))
    queue, times = gpu.compute, []
    queue.submit(queue.record().fill(source, 0))
    for run in range(runs + 1):
        commands = queue.record().barrier(hcq.Scope.DEVICE)
        with commands.span(f"{name}{run}"):
            args = program.args(out, source, ROUNDS)
            commands.exec(program, args, groups=(groups, 1, 1), threads=(THREADS, 1, 1))
        queue.submit(commands).wait()
        (span,) = gpu.spans()
        times.append((span.end_ns - span.start_ns) * 1e-9)
    return min(times[1:] or times)


def estimate(emulated: hcq.Device, name: str, groups: int) -> tuple[Estimate, ...]:
    """Return the estimates of a launch, for each GPU of the architecture that has published rates.

    The counts are those of `COUNTED` workgroups on an emulated GPU; `groups` must be a multiple of `COUNTED`.
    Raises as `hcq.counting`.
    """
    with hcq.counting(emulated) as counted:
        launched(emulated, name, COUNTED, runs=0)
    found = counted[name]
    return estimates(boards()[found.arch], found.scaled(groups // COUNTED))


def chip_of(info: DeviceInfo, found: Sequence[Estimate]) -> Estimate:
    """Return the estimate for the GPU itself if its name is listed, else the first estimate in `found`.

    Raises `UsageError` if `found` is empty: no GPU of the architecture has published rates.
    """
    if not found:
        known = ", ".join(board.name for one in boards().values() for board in one)
        raise UsageError(f"no rates of a GPU of {info.arch} are listed; there are {known}")
    return next((one for one in found if one.chip in info.name), found[0])


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return the exit status."""
    parser = command("tools.calibrate", __doc__)
    parser.add_argument("--device", type=device_name, default="nv", help="the GPU; default: %(default)s")
    parser.add_argument("--groups", type=positive, default=GROUPS, help="workgroups; a multiple of 4")
    options = parser.parse_args(argv)
    if options.groups < COUNTED or options.groups % COUNTED:
        parser.error(f"--groups must be a multiple of {COUNTED}")
    with hcq.open(options.device) as gpu, hcq.open(EMULATED.get(gpu.info.arch, "nv-emu")) as emulated:
        for name in KERNELS:
            seconds = launched(gpu, name, options.groups, runs=_RUNS)
            one = chip_of(gpu.info, estimate(emulated, name, options.groups))
            row = {
                "case": name, "gpu": gpu.info.name, "chip": one.chip, "groups": options.groups,
                "measured_us": seconds * 1e6, "estimated_us": one.seconds * 1e6, "bound": one.bound,
                "ratio": seconds / one.seconds, "emulated": gpu.info.driver.endswith("-emu"),
            }  # fmt: skip
            print(json.dumps(row), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(reported(main))
