"""A kernel with an instruction that is not emulated: the diagnostics name it and its line."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest

from emulator.nv.machine import FindingKind
from tests.emulator.nv_machine.launching import Launcher, cubin, upload

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.emulator.nv_machine.client import Client

VIDEO = """
.visible .entry video(.param .u64 at) {
 .reg .b32 %r<3>; .reg .b64 %d<1>;
 ld.param.u64 %d0, [at]; mov.u32 %r0, 1; mov.u32 %r1, 2;
 vabsdiff.u32.u32.u32.add %r2, %r0, %r1, %r0;
 st.global.u32 [%d0], %r2; ret;
}
"""


@pytest.mark.parametrize("profile", ["sm_80", "sm_90", "sm_120"])
def test_an_instruction_that_is_not_emulated_is_named_with_its_line(
    make: Callable[..., Client], profile: str
) -> None:
    client = make(profile).up()
    launcher, code = Launcher.make(client), upload(client, raw := cubin(profile, VIDEO))
    launcher.fails(code, "video", struct.pack("<Q", client.memory(4096).va))
    assert client.machine.fatal[0].kind is FindingKind.UNSUPPORTED
    text = raw[: raw.index(b"vabsdiff")]
    line = text[text.rindex(b".version") :].count(b"\n") + 1
    (told,) = client.kernel.diagnostics()
    assert "vabsdiff.u32.u32.u32.add" in told
    assert f"line {line}" in told
    assert "video" in told
