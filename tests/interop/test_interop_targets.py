"""Images of one architecture on a GPU of another: those that hardware runs run, load refuses the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

import hcq
import interop
from compiler.targets.nvptx.assembler import assemble
from tests.guests import build

if TYPE_CHECKING:
    from collections.abc import Iterator

PTX = """.version 8.8
.target TARGET
.address_size 64
.visible .entry fill(.param .u64 .ptr .global out, .param .u32 n) {
  .reg .b64 %rd<4>; .reg .b32 %r<4>;
  ld.param.u64 %rd0, [out]; ld.param.u32 %r0, [n]; mov.u32 %r1, %tid.x; add.u32 %r0, %r0, %r1;
  mul.wide.u32 %rd1, %r1, 4; add.u64 %rd2, %rd0, %rd1; st.global.u32 [%rd2], %r0; ret;
}
"""
CUBINS = {
    "sm_80": {"sm_80"},
    "sm_86": {"sm_80", "sm_86"},
    "sm_89": {"sm_80", "sm_86", "sm_89"},
    "sm_90": {"sm_90", "sm_90a"},
    "sm_120": {"sm_120", "sm_120a"},
}
"""Device -> architectures whose machine code it runs: the own one, and earlier minor revisions."""
AMD = ("gfx942", "gfx1100", "gfx1201")
EVERY = sorted(set().union(*CUBINS.values()))


@pytest.fixture(scope="module", params=CUBINS)
def device(request: pytest.FixtureRequest) -> Iterator[hcq.Device]:
    with hcq.open(f"nv-emu:{request.param}") as opened:
        yield opened


def filled(device: hcq.Device, image: str | bytes) -> list[int]:
    out = interop.empty(device, 32, np.uint32)
    interop.load(device, image).launch(out, 5, groups=1, threads=32)
    return out.numpy().tolist()


@pytest.mark.parametrize("arch", EVERY)
def test_a_cubin_runs_on_later_minor_revisions_only(arch: str, device: hcq.Device):
    code = assemble(PTX.replace("TARGET", arch), arch)
    if arch in CUBINS[device.info.arch.rstrip("a")]:
        assert filled(device, code) == list(range(5, 37))
        return
    with pytest.raises(
        hcq.UnsupportedError, match=f"the cubin is for {arch.rstrip('a')}, .*\nhint: load the PTX"
    ):
        interop.load(device, code)


@pytest.mark.parametrize("arch", EVERY)
def test_ptx_without_a_letter_runs_on_every_later_architecture(arch: str, device: hcq.Device):
    wanted, own = int(arch.strip("sm_a")), int(device.info.arch.strip("sm_a"))
    if wanted == own or (wanted < own and not arch.endswith("a")):
        assert filled(device, PTX.replace("TARGET", arch)) == list(range(5, 37))
        return
    with pytest.raises(hcq.UnsupportedError, match=f"the PTX is for {arch}, .*\nhint: compile for"):
        interop.load(device, PTX.replace("TARGET", arch))


@pytest.mark.parametrize("made_for", AMD)
@pytest.mark.parametrize("target", AMD)
def test_a_code_object_of_another_target_is_refused(target: str, made_for: str):
    code = build.read(build.DATA / f"triton_{made_for}.tar.xz")["softmax"][1]
    with hcq.open(f"amd-emu:{target}") as device:
        if made_for == target:
            interop.load(device, code)
            return
        words = (
            f"compiled for {made_for}, this GPU is {target}\nhint: compile it for {target}, or open a GPU of"
        )
        with pytest.raises(hcq.UnsupportedError, match=words):
            interop.load(device, code)
