"""Kernels that call functions of the assembler and read its tables: their code is relocated on upload."""

import numpy as np
import pytest

import hcq
import interop

HEAD = ".version 8.5\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 .ptr .global p) {\n"
DIVIDE = """
  .reg .b64 %rd<2>; .reg .f64 %f<3>;
  ld.param.u64 %rd0, [p]; ld.global.f64 %f0, [%rd0]; ld.global.f64 %f1, [%rd0+8];
  div.rn.f64 %f2, %f0, %f1; st.global.f64 [%rd0], %f2; ret;
}
"""
TABLE = """
  .reg .b64 %rd<4>; .reg .b32 %r<3>;
  ld.param.u64 %rd0, [p]; ld.global.u32 %r0, [%rd0];
  mov.u64 %rd1, table; mul.wide.u32 %rd2, %r0, 4; add.u64 %rd3, %rd1, %rd2;
  ld.global.u32 %r1, [%rd3]; st.global.u32 [%rd0], %r1; ret;
}
"""


@pytest.fixture(scope="module", params=["nv-emu:sm_80", "nv-emu:sm_90"])
def device(request: pytest.FixtureRequest):
    with hcq.open(request.param) as opened:
        yield opened


def test_division_of_doubles_calls_the_function_in_the_image(device: hcq.Device):
    values = interop.array(device, np.array([1.0, 3.0]))
    interop.load(device, HEAD + DIVIDE).launch(values, groups=1, threads=1)
    assert values.numpy()[0] == 1.0 / 3.0


def test_tables_of_the_module_are_found(device: hcq.Device):
    text = HEAD.replace(".visible", ".global .align 4 .b32 table[4] = {10, 20, 30, 40};\n.visible") + TABLE
    values = interop.array(device, np.array([2], np.uint32))
    interop.load(device, text).launch(values, groups=1, threads=1)
    assert values.numpy()[0] == 30
