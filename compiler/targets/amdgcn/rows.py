"""The AMD architectures for which kernels are compiled, a row each.

A row has wave sizes, instructions that exchange registers between lanes, and the first LLVM version with the
processor. Sources: LLVM's AMDGPUUsage (processors, features); the instruction-set manuals of MI200, MI300,
RDNA2, RDNA3 and RDNA4. The figures of the cost model are those that AMD publishes for the largest device;
they only rank schedules.

Not here: properties for the driver (`drivers.amd.layouts.chips`). Next: `target`, which compiles for a row.
"""

from __future__ import annotations

from dataclasses import dataclass

from hcq.errors import UnsupportedError


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One processor, named as for LLVM's `-mcpu`."""

    waves: tuple[int, ...]
    """Possible numbers of threads of a wave, the default first."""
    features: frozenset[str]
    """Groups of instructions that the processor has, as `lanes` and `intrinsics.NEEDS` name them."""
    llvm: int
    """The first major version of LLVM with this processor."""
    processors: int
    """Compute units of the largest device."""
    gigahertz: float
    bytes_per_ns: float
    """Memory bandwidth of one compute unit in bytes per nanosecond."""
    l2_bytes: int


CDNA2 = frozenset(("memtime", "mfma", "mfma-i8-k16"))
CDNA3 = frozenset(("memtime", "mfma", "mfma-i8-k32", "mfma-fp8", "mfma-xf32", "cvt-fp8"))
CDNA4 = CDNA3 - {"mfma-xf32"} | {"mfma-k32", "permlane-swap", "dot-bf16"}
RDNA2 = frozenset(("row-xmask", "dpp8", "permlane16", "memtime"))
RDNA3 = RDNA2 - {"memtime"} | {"permlane64", "dot-bf16", "dot-mixed-sign", "wmma-gfx11"}
RDNA4 = RDNA3 - {"wmma-gfx11"} | {"wmma-gfx12", "split-barrier", "cvt-fp8"}

ROWS = {
    "gfx90a": Row(waves=(64,), features=CDNA2, llvm=13, processors=110, gigahertz=1.7, bytes_per_ns=14.9,
                  l2_bytes=8 << 20),
    "gfx942": Row(waves=(64,), features=CDNA3, llvm=17, processors=304, gigahertz=2.1, bytes_per_ns=17.4,
                  l2_bytes=4 << 20),
    "gfx950": Row(waves=(64,), features=CDNA4, llvm=20, processors=256, gigahertz=2.4, bytes_per_ns=31.0,
                  l2_bytes=4 << 20),
    "gfx1030": Row(waves=(32, 64), features=RDNA2, llvm=11, processors=80, gigahertz=2.2, bytes_per_ns=6.4,
                   l2_bytes=4 << 20),
    "gfx1100": Row(waves=(32, 64), features=RDNA3, llvm=15, processors=96, gigahertz=2.5, bytes_per_ns=10.0,
                   l2_bytes=6 << 20),
    "gfx1101": Row(waves=(32, 64), features=RDNA3, llvm=15, processors=60, gigahertz=2.4, bytes_per_ns=10.4,
                   l2_bytes=4 << 20),
    "gfx1102": Row(waves=(32, 64), features=RDNA3, llvm=15, processors=32, gigahertz=2.6, bytes_per_ns=9.0,
                   l2_bytes=2 << 20),
    "gfx1103": Row(waves=(32, 64), features=RDNA3, llvm=15, processors=12, gigahertz=2.7, bytes_per_ns=8.0,
                   l2_bytes=2 << 20),
    "gfx1150": Row(waves=(32, 64), features=RDNA3, llvm=17, processors=16, gigahertz=2.9, bytes_per_ns=7.5,
                   l2_bytes=2 << 20),
    "gfx1151": Row(waves=(32, 64), features=RDNA3, llvm=17, processors=40, gigahertz=2.9, bytes_per_ns=6.4,
                   l2_bytes=2 << 20),
    "gfx1200": Row(waves=(32, 64), features=RDNA4, llvm=18, processors=32, gigahertz=3.1, bytes_per_ns=10.0,
                   l2_bytes=4 << 20),
    "gfx1201": Row(waves=(32, 64), features=RDNA4, llvm=18, processors=64, gigahertz=3.0, bytes_per_ns=10.0,
                   l2_bytes=8 << 20),
}  # fmt: skip

CODE_OBJECTS = {"v5": 500, "v6": 600}
"""Version of the code object -> LLVM's `amdhsa_code_object_version`."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A compilation target: a processor, its wave size, and the code object version."""

    arch: str
    row: Row
    wave: int
    version: str


def choice_of(text: str) -> Choice:
    """Return the choice of a name, "gfx1100" or with options "gfx1100:wave64:v6", in any order.

    By default waves have the first size of the row, and code objects are v5. Raises `UnsupportedError` for an
    unknown processor or option, and for two options of a kind.
    """
    arch, *options = text.split(":")
    row = ROWS.get(arch)
    if row is None:
        raise UnsupportedError(f"no compiler target for {arch!r}; AMD archs known are {', '.join(ROWS)}")
    waves = {f"wave{size}": size for size in row.waves}
    sizes = [waves[option] for option in options if option in waves]
    versions = [option for option in options if option in CODE_OBJECTS]
    if len(sizes) > 1 or len(versions) > 1 or len(sizes) + len(versions) < len(options):
        raise UnsupportedError(
            f"{arch} does not have the options of {text!r}; they are one of {', '.join(waves)}, "
            f"and one of {', '.join(CODE_OBJECTS)}"
        )
    return Choice(arch, row, sizes[0] if sizes else row.waves[0], versions[0] if versions else "v5")
