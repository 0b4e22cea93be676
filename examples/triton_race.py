"""A Triton kernel with a race: its programs add to one number without an atomic operation.

`hcq sanitize examples/triton_race.py` finds it on an emulated GPU. Needs the extra `triton`.
"""

import numpy as np
import triton
import triton.language as tl

import interop.triton_backend


@triton.jit
def total(x, out, BLOCK: tl.constexpr):
    part = tl.sum(tl.load(x + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)))
    tl.store(out, tl.load(out) + part)  # tl.atomic_add(out, part) is right


device = interop.triton_backend.use("nv-emu:sm_80")
x, out = interop.array(device, np.ones(4096, np.float32)), interop.array(device, np.zeros(1, np.float32))
total[(4,)](x, out, BLOCK=1024)
