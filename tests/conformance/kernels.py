"""The kernels of the conformance suite: their signatures, and the code for each architecture family.

A workgroup has one thread everywhere. To add a family, give `CODE` a function that turns a kernel's name and
the device's architecture into an ELF image; the argument blocks are the same for all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hcq import ArgKind, ArgSlot, KernelImage
from tests.conformance import kernels_amd, kernels_host, kernels_nv

if TYPE_CHECKING:
    from collections.abc import Callable

    from hcq import DeviceInfo


def _pointer(name: str, offset: int, access: str) -> ArgSlot:
    return ArgSlot(name, ArgKind.POINTER, offset, 8, access)  # type: ignore[arg-type]  # r, w or rw


def _number(name: str, offset: int) -> ArgSlot:
    return ArgSlot(name, ArgKind.INT, offset, 4)


SIGNATURES: dict[str, tuple[ArgSlot, ...]] = {
    # out[x] = a[x] + b[x]
    "add": (_pointer("out", 0, "w"), _pointer("a", 8, "r"), _pointer("b", 16, "r")),
    # out[x] = a[x]
    "copy": (_pointer("out", 0, "w"), _pointer("a", 8, "r")),
    # i = (z * height + y) * width + x; out[i] = out[i] + base + i
    "index": (_pointer("out", 0, "rw"), _number("width", 8), _number("height", 12), _number("base", 16)),
    # out[0] += 1, atomically
    "count": (_pointer("out", 0, "rw"),),
    # out[0] = out[0] * factor + term
    "affine": (_pointer("out", 0, "rw"), _number("factor", 8), _number("term", 12)),
    # out[slot] = counter[0]++, atomically
    "turn": (_pointer("out", 0, "w"), _pointer("counter", 8, "rw"), _number("slot", 16)),
    # n steps of work that cannot be left out, then out[0] += 1, atomically
    "spin": (_pointer("out", 0, "rw"), _number("n", 8)),
}
"""All data is u32."""

CODE: dict[str, Callable[[str, str], bytes]] = {
    "host": kernels_host.code,
    "nv": kernels_nv.code,
    "amd": kernels_amd.code,
}
"""Family -> maker of code."""


def family(info: DeviceInfo) -> str:
    """Return the family of architectures that a device belongs to."""
    if info.arch.startswith("sm_"):
        return "nv"
    return "amd" if info.arch.startswith("gfx") else "host"


def image(name: str, info: DeviceInfo) -> KernelImage:
    """Return a kernel for a device. Skips the test if it is not written, or if no kernel can run."""
    if info.limits.get("max_threads") == 0:
        pytest.skip(f"{info.driver} runs no kernels: its limits say max_threads = 0")
    kind = family(info)
    if kind not in CODE:
        pytest.skip(f"tests/conformance has no kernels for {info.arch}")
    slots = SIGNATURES[name]
    size = (max(slot.offset + slot.size for slot in slots) + 7) & -8
    return KernelImage(
        name=name,
        arch=info.arch,
        code=CODE[kind](name, info.arch),
        args=slots,
        kernarg_size=size,
        max_threads=1,
        group_ns=0 if name == "spin" else 2,
    )
