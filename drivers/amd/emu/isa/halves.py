"""Which operands of an instruction are 16 bits wide, told by its name (true16 encodings of gfx11 and gfx12).

Next: `decode`, the user.
"""

from __future__ import annotations

import functools
import re

_SMALL = {"f16", "i16", "u16", "b16", "bf16"}
_PACKED = re.compile(
    r"v_pk_|v_dot|v_fma_mix|v_wmma|v_swmmac|v_cvt_pk_|v_perm|v_mfma|v_cvt_pknorm|v_mad_mix|v_dual"
)


@functools.cache
def halves(stem: str) -> tuple[bool, tuple[bool, bool, bool]]:
    """Return whether the destination is 16 bits, and which of the sources are."""
    no = (False, False, False)
    if stem in ("v_dot2_f16_f16", "v_dot2_bf16_bf16"):
        return True, (False, False, True)
    if stem in ("v_mad_i32_i16", "v_mad_u32_u16"):
        return False, (True, True, False)
    if stem in ("v_alignbit_b32", "v_alignbyte_b32"):
        return False, (False, False, True)
    if stem == "v_pack_b32_f16":
        return False, (True, True, False)
    if stem == "v_sat_pk_u8_i16":
        return True, no
    if stem == "v_cndmask_b16":
        return True, (True, True, False)
    if stem.startswith(("v_cvt_pk_norm", "v_cvt_pk_")) and stem.endswith("_f16"):
        return False, (True, True, False)
    if stem.startswith(("v_interp", "v_cvt_sr")) or _PACKED.match(stem):
        return False, no
    parts = stem.split("_")
    if stem.startswith("v_cvt_"):
        return _convert(parts[2:])
    if stem.startswith("v_cmp"):
        return False, (True, True, False) if parts[-1] in _SMALL else no
    if parts[-1] not in _SMALL:
        return False, no
    return True, (True, True, True)


def _convert(parts: list[str]) -> tuple[bool, tuple[bool, bool, bool]]:
    types = [p for p in parts if re.fullmatch(r"b?[fiu]\d+", p)]
    if len(types) != 2:
        return False, (False, False, False)
    return types[0] in _SMALL, (types[1] in _SMALL, False, False)
