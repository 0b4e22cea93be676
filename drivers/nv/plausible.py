"""What a GPU may say of itself: counts and sizes that no supported GPU has are an error, nothing to build on.

A reply that lies elsewhere in the buffer than its layout says, as on an unknown build of the kernel driver,
otherwise becomes wrong sizes of local memory and limits that nobody notices. The ranges hold for every chip
of the table in `families`, whole or floor-swept; they say nothing of which chip it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from drivers.nv.layouts.families import sm_number
from drivers.nv.refusals import BringUpError

if TYPE_CHECKING:
    from drivers.nv.rm import Rm
    from drivers.nv.topology import Gpu

SOURCE = "48 or 64 warps an SM from compute capability 8.0 to 12.x; nv.md 1.6 (512 SM records), 2.7"

WARPS: Final = range(32, 65)
GPCS: Final = range(1, 33)
"""A mask of GPCs has 32 bits."""
TPCS_PER_GPC: Final = range(1, 33)
SMS_PER_TPC: Final = range(1, 5)
MOST_SMS: Final = 512
VRAM_BYTES: Final = range(1 << 30, 1 << 40)
CLASSES: Final = range(1, 1025)


def implausible(rm: Rm, name: str, what: str) -> BringUpError:
    """Return the error for a reply that cannot be true."""
    return BringUpError(
        f"{name or 'the GPU'}: what driver {rm.version} says of it cannot be true: {what}\n"
        f"hint: does this build of the driver lay its structures out otherwise than branch {rm.branch}? "
        "`python -m tools.bringup --to 5 --json` shows what was said; "
        'opening it as "nv:plausible=false" believes it all the same'
    )


def doubts(gpu: Gpu) -> str:
    """Return what of a GPU's numbers no supported GPU has, in words; empty when all is plausible."""
    row, per_gpc, per_tpc = gpu.generation, gpu.tpcs_per_gpc, gpu.sms_per_tpc
    room = min(gpu.litter_tpcs * per_tpc, MOST_SMS)
    fine = {
        f"SM version {gpu.sm_version:#x} on a {row.name}, whose is {row.sm_version:#x}": (
            sm_number(gpu.sm_version) // 10 == sm_number(row.sm_version) // 10
        ),
        f"{gpu.max_warps} warps an SM": gpu.max_warps in WARPS,
        f"{gpu.gpcs} GPCs": gpu.gpcs in GPCS,
        f"{per_gpc} TPCs a GPC": per_gpc in TPCS_PER_GPC,
        f"{per_tpc} SMs a TPC": per_tpc in SMS_PER_TPC,
        f"{gpu.sms} SMs where {gpu.gpcs} GPCs of {per_gpc} TPCs of {per_tpc} are {room} at most": (
            1 <= gpu.sms <= room
        ),
        f"{gpu.vram_bytes} bytes of video memory": gpu.vram_bytes in VRAM_BYTES,
        "a UUID of zeros": any(gpu.uuid),
    }
    return "; ".join(text for text, is_fine in fine.items() if not is_fine)
