"""What an emulated NVIDIA machine is: the GPU's generation, the kernel module's version, whether ioctls are filtered.

"nv-emu" is an H200 behind a filter that lets through only what nv.md 7 lists, kernel module 580. Other
variants: an architecture ("sm_80", "sm_120"), a branch ("570", "595"), "native" for no filter; several
joined by "+": "sm_80+570+native".
"""

# ruff: noqa: E501 - summaries and tables that name their parameters read best on one line

from __future__ import annotations

from dataclasses import dataclass, replace

from drivers.nv.layouts.branches import BRANCHES, STRUCTS
from drivers.nv.layouts.families import GENERATIONS, Generation
from hcq.errors import UsageError

_VERSIONS = {570: "570.211.01", 580: "580.159.03", 590: "590.48.01", 595: "595.45.04"}
_ARCHES = {
    "sm_80": 0xC6C0,
    "sm_86": 0xC7C0,
    "sm_89": 0xC9C0,
    "sm_90": 0xCBC0,
    "sm_100": 0xCDC0,
    "sm_120": 0xCEC0,
}
_NAMES = {
    "sm_80": "Emulated A100",
    "sm_86": "Emulated A10",
    "sm_89": "Emulated L40",
    "sm_90": "Emulated H200",
    "sm_100": "Emulated B200",
    "sm_120": "Emulated RTX 5090",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One emulated machine."""

    arch: str = "sm_90"
    branch: int = 580
    filtered: bool = True
    """Only what a compute-only sandbox passes (nv.md 7)."""
    vram_bytes: int = 16 << 30
    gpcs: int = 2
    tpcs_per_gpc: int = 3
    """Physical shape; the litter values say one TPC more, as floor-swept chips do."""
    seed: int = 0
    """Order in which queues advance and unordered grids run."""

    @property
    def generation(self) -> Generation:
        """The row of the architecture table."""
        return GENERATIONS[_ARCHES[self.arch]]

    @property
    def version(self) -> str:
        """The kernel module's version."""
        return _VERSIONS[self.branch]

    @property
    def name(self) -> str:
        """The GPU's marketing name."""
        return _NAMES[self.arch]

    @property
    def classes(self) -> tuple[int, ...]:
        """The class list that the device gives."""
        row = self.generation
        common = (
            0x0000,
            0x0041,
            0x0080,
            0x2080,
            0x003E,
            0x0040,
            0x0071,
            0x0079,
            0x90F1,
            0xA06C,
            0x9067,
            0x83DE,
        )
        return (*common, row.compute, *row.gpfifo, *row.usermode, *row.copy)

    @property
    def code_arch(self) -> str:
        """What kernels are compiled for."""
        return "sm_90a" if self.arch == "sm_90" else self.arch

    @property
    def address_bits(self) -> int:
        """Bits of a GPU virtual address (nv.md 2.5)."""
        return 56 if self.generation.wide_addresses else 47

    def layout(self, name: str):  # type: ignore[no-untyped-def]  # noqa: ANN201 - the classes differ by name
        """Return a structure of this branch by its name."""
        return STRUCTS[self.branch][name]


def profile_of(variant: str | None, *, seed: int = 0) -> Profile:
    """Read the text behind the colon of "nv-emu:sm_80+570"; None is the default machine."""
    profile = Profile(seed=seed)
    for word in (variant or "").split("+"):
        if word in _ARCHES:
            profile = replace(profile, arch=word)
        elif word == "sm_90a":
            profile = replace(profile, arch="sm_90")
        elif word.isdigit() and int(word) in BRANCHES:
            profile = replace(profile, branch=int(word))
        elif word == "native":
            profile = replace(profile, filtered=False)
        elif word:
            raise UsageError(
                f"no emulated NVIDIA machine {word!r}; there are: {', '.join(_ARCHES)}; branches {BRANCHES}; native"
            )
    return profile
