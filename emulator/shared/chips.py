"""Published rates of GPUs, and the least time that counted work takes by them: a roofline, uncalibrated.

Rates are peaks at the boost clock, of matrices without sparsity and with sums in 32 bits where a data sheet
tells them apart. A type without a published rate bounds nothing.

Not here: the counts, and what limits the warps in flight (`counts`). Next: docs/counters.md,
which lists the rates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hcq.counters import Estimate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hcq.counters import KernelCounters

ONCHIP_BYTES: Final = 128
"""Bytes that shared memory moves in a cycle: 32 banks of 4. First-level caches are taken to move as many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chip:
    """One GPU. Rates are in units of 10^12 operations a second, bandwidth in 10^9 bytes a second."""

    name: str
    arch: str
    parts: int
    """Multiprocessors (compute units)."""
    clock_mhz: int
    bandwidth: float
    vector: Mapping[str, float]
    """Type -> rate outside matrix instructions."""
    matrix: Mapping[str, float]
    """Type of the factors -> rate of matrix instructions."""
    source: str
    """The publication that the rates are from."""
    joint: bool = True
    """Whether accesses to shared memory and to the first-level cache use the same data path."""


_A100 = "NVIDIA A100 Tensor Core GPU Architecture, white paper, tables 1 and 4; A100 data sheet (80 GB SXM)"
_H100 = "NVIDIA H100 Tensor Core GPU Architecture, white paper, table 3 (SXM5)"
_HOPPER_VECTOR: Final = {"f64": 33.5, "f32": 66.9, "f16": 133.8, "bf16": 133.8}
_HOPPER_MATRIX: Final = {
    "f64": 66.9, "tf32": 494.7, "f16": 989.4, "bf16": 989.4, "e4m3": 1978.9, "e5m2": 1978.9, "s8": 1978.9,
    "u8": 1978.9,
}  # fmt: skip
CHIPS: Final = (
    Chip(
        name="A100", arch="sm_80", parts=108, clock_mhz=1410, bandwidth=2039, source=_A100,
        vector={"f64": 9.7, "f32": 19.5, "f16": 78, "bf16": 39},
        matrix={"f64": 19.5, "tf32": 156, "f16": 312, "bf16": 312, "s8": 624, "u8": 624, "s4": 1248, "u4":
        1248},
    ),
    Chip(
        name="H100", arch="sm_90", parts=132, clock_mhz=1980, bandwidth=3350, vector=_HOPPER_VECTOR,
        matrix=_HOPPER_MATRIX, source=_H100 + "; H100 data sheet",
    ),
    Chip(
        name="H200", arch="sm_90", parts=132, clock_mhz=1980, bandwidth=4800, vector=_HOPPER_VECTOR,
        matrix=_HOPPER_MATRIX, source=_H100 + "; NVIDIA H200 data sheet",
    ),
    Chip(
        name="RTX 3090", arch="sm_86", parts=82, clock_mhz=1695, bandwidth=936,
        vector={"f64": 0.556, "f32": 35.6, "f16": 35.6, "bf16": 35.6},
        matrix={"tf32": 35.6, "f16": 71, "bf16": 71, "s8": 284, "u8": 284, "s4": 568, "u4": 568},
        source="NVIDIA Ampere GA102 GPU Architecture, white paper, appendix A",
    ),
    Chip(
        name="RTX 4090", arch="sm_89", parts=128, clock_mhz=2520, bandwidth=1008,
        vector={"f64": 1.29, "f32": 82.6, "f16": 82.6, "bf16": 82.6},
        matrix={
            "tf32": 82.6, "f16": 165.2, "bf16": 165.2, "e4m3": 330.3, "e5m2": 330.3, "s8": 660.6, "u8": 660.6,
            "s4": 1321.2, "u4": 1321.2,
        },
        source="NVIDIA Ada GPU Architecture, white paper, appendix A",
    ),
    Chip(
        name="RTX 5090", arch="sm_120", parts=170, clock_mhz=2407, bandwidth=1792,
        vector={"f64": 1.64, "f32": 104.8, "f16": 104.8, "bf16": 104.8},
        matrix={
            "tf32": 104.8, "f16": 209.5, "bf16": 209.5, "e4m3": 419, "e5m2": 419, "s8": 838, "u8": 838,
        },
        source="NVIDIA RTX Blackwell GPU Architecture, white paper, appendix A",
    ),
    Chip(
        name="MI300X", arch="gfx942", parts=304, clock_mhz=2100, bandwidth=5300, joint=False,
        vector={"f64": 81.7, "f32": 163.4},
        matrix={
            "f64": 163.4, "f32": 163.4, "xf32": 653.7, "f16": 1307.4, "bf16": 1307.4, "fp8": 2614.9, "i8":
            2614.9,
        },
        source=(
            "AMD ROCm documentation, MI300 series microarchitecture, peak-performance table; "
            "AMD Instinct MI300X data sheet"
        ),
    ),
    Chip(
        name="RX 7900 XTX", arch="gfx1100", parts=96, clock_mhz=2500, bandwidth=960, joint=False,
        vector={"f64": 1.92, "f32": 61.4, "f16": 122.8},
        matrix={"f16": 122.8, "bf16": 122.8, "i8": 122.8, "i4": 245.7},
        source="AMD Radeon RX 7900 XTX, product page; AMD RDNA 3 instruction set architecture, 7.9",
    ),
    Chip(
        name="RX 9070 XT", arch="gfx1201", parts=64, clock_mhz=2970, bandwidth=640, joint=False,
        vector={"f32": 48.7, "f16": 97.3},
        matrix={"f16": 195, "bf16": 195, "fp8": 389, "i8": 389, "i4": 779},
        source=(
            "AMD Radeon RX 9070 XT, product page; AMD GPUOpen, Using the Matrix Cores of AMD RDNA 4"
        ),
    ),
)  # fmt: skip
_INTEGERS: Final = {"iu8": "i8", "iu4": "i4", "bf8": "fp8"}
"""Names of AMD's matrix types -> the type whose rate they have."""


def estimates(counts: KernelCounters) -> tuple[Estimate, ...]:
    """Return the least time of a launch on each GPU of its architecture."""
    return tuple(_estimate(chip, counts) for chip in CHIPS if chip.arch == counts.arch)


def _estimate(chip: Chip, counts: KernelCounters) -> Estimate:
    """Return the longest of the times that arithmetic, memory and on-chip traffic take by themselves.

    Workgroups are taken to be alike: the fullest multiprocessor has its share of them, rounded up.
    """
    rounds = -(-counts.groups // chip.parts)
    share = rounds / counts.groups * chip.parts
    """How much longer the fullest multiprocessor takes than the mean one would."""
    vector = sum(n / (chip.vector[t] * 1e12) for t, n in counts.flops.items() if t in chip.vector)
    named = ((_INTEGERS.get(t, t), n) for t, n in counts.matrix.items())
    matrix = sum(n / (chip.matrix[t] * 1e12) for t, n in named if t in chip.matrix)
    memory = (counts.read + counts.written) / (chip.bandwidth * 1e9)
    cycles = sum(one.units for one in counts.shared.values())
    lines = counts.moved / ONCHIP_BYTES
    onchip = (cycles + lines if chip.joint else max(cycles, lines)) / (chip.parts * chip.clock_mhz * 1e6)
    times = {
        "compute": vector * share,
        "matrix": matrix * share,
        "memory": memory,
        "on-chip": onchip * share,
    }
    return Estimate(chip=chip.name, parts=times)
