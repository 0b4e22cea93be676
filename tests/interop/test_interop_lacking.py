"""Kernels that use what a device lacks are refused by name at load, others of their module are not."""

import pytest

import hcq
import interop
from emulator.nv.ptx.module import load_ptx
from emulator.nv.ptx.statements import PtxError
from interop import ptx

HEAD = """.version 8.7
.target {arch}
.address_size 64
{globals}
.visible .entry plain(.param .u64 out) {{ ret; }}
.visible .entry odd(.param .u64 out) {{
  .reg .b16 %h<4>; .reg .b32 %r<9>; .reg .f32 %f<9>; .reg .b64 %rd<4>; .reg .pred %p;
  {line}
  ret;
}}
"""
ON_ALL = {
    "tex.2d.v4.f32.s32 {%f0, %f1, %f2, %f3}, [%rd0, {%r0, %r1}];": "textures",
    "tld4.r.2d.v4.f32.f32 {%f0, %f1, %f2, %f3}, [%rd0, {%f4, %f5}];": "textures",
    "txq.width.b32 %r0, [%rd0];": "textures",
    "sust.b.1d.b32.trap [%rd0, {%r0}], {%r1};": "surfaces",
    "suld.b.2d.b32.trap {%r1}, [%rd0, {%r0, %r2}];": "surfaces",
    "mov.u32 %r0, %envreg3;": "%envreg",
}
EMULATED = {
    "proto: .callprototype (.param .b32 _) _ (.param .b64 _); ld.param.u64 %rd0, [out];": "virtual calls",
    "mma.sp::ordered_metadata.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
    " {%f0,%f1,%f2,%f3}, {%r0,%r1}, {%r2,%r3}, {%f0,%f1,%f2,%f3}, %r4, 0x0;": "sparse products",
    "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3"
    " {%f0,%f1,%f2,%f3}, {%r0,%r1,%r2,%r3}, {%r4,%r5}, {%f0,%f1,%f2,%f3}, %r6, {0, 0}, %r7, {0, 0};": (
        "block-scaled products"
    ),
}


def text_of(line: str, arch: str = "sm_80", variables: str = "") -> str:
    return HEAD.format(arch=arch, globals=variables, line=line)


DEVICE = "nv-emu:sm_120"


@pytest.mark.parametrize(("line", "name"), [*ON_ALL.items(), *EMULATED.items()])
def test_what_an_emulated_gpu_lacks_is_refused_at_load_by_name(device: hcq.Device, line: str, name: str):
    text = text_of(line, "sm_120a")
    with pytest.raises(hcq.UnsupportedError, match=f"kernel odd uses .*{name}.*nv-emu"):
        interop.load(device, text.encode(), entry="odd")
    found = ptx.lacking(text, "odd", emulated=False)
    assert (found is not None) is (line in ON_ALL), "and so is what hardware lacks"
    assert ptx.lacking(text, "plain", emulated=True) is None


def test_a_function_of_the_module_counts_as_the_kernels_own():
    text = text_of("ret;", variables=".func f() { .reg .b32 %r; mov.u32 %r, %envreg1; ret; }")
    assert ptx.lacking(text, "plain", emulated=False) is not None


def test_comments_and_names_are_no_features():
    assert ptx.lacking(text_of("// tex.2d %envreg1\n  /* .callprototype */"), "odd", emulated=True) is None


@pytest.mark.parametrize(("line", "name"), list(ON_ALL.items())[:5])
def test_the_emulated_gpu_runs_other_kernels_of_a_module_with_textures(line: str, name: str):
    module = load_ptx(text_of(line, variables=".global .texref t; .global .surfref s;"), arch="sm_90")
    module.kernel("plain")
    with pytest.raises(PtxError, match=f"{name} are not supported|txq is not supported"):
        module.kernel("odd")


def test_the_emulated_gpu_runs_other_kernels_of_a_module_with_indirect_calls():
    line = (
        "proto: .callprototype (.param .b32 _) _ (.param .b64 _);\n"
        "{ .param .b64 a; .param .b32 b; st.param.b64 [a], %rd0; call (b), %rd1, (a), proto; }"
    )
    module = load_ptx(text_of(line), arch="sm_90")
    module.kernel("plain")
    with pytest.raises(PtxError, match="indirect calls are not supported"):
        module.kernel("odd")


GRID = """.version 8.7
.target sm_80
.address_size 64
.visible .entry meet(.param .u64 out) {
  .reg .b32 %r<4>; .reg .b64 %rd<3>;
  mov.u32 %r1, %envreg2; mov.u32 %r2, %envreg1;
  mov.b64 %rd1, {%r1, %r2};
  ld.param.u64 %rd2, [out]; st.global.u64 [%rd2], %rd1;
  ld.u32 %r3, [%rd1+4]; st.global.u32 [%rd2+8], %r3;
  ret;
}
"""


def test_the_state_of_a_grid_barrier_is_a_cleared_variable_of_the_module():
    with hcq.open("nv-emu:sm_80") as device:
        kernel = interop.load(device, GRID)
        out = interop.array(device, [-1, -1, -1, -1], "int32")
        kernel.launch(out, groups=1, threads=1, cooperative=True).wait()
        low, high, count, _ = out.numpy().tolist()
        assert low or high
        assert count == 0
        with pytest.raises(
            hcq.UsageError, match=r"barrier of the whole grid.*\nhint: launch it with cooperative=True"
        ):
            kernel.launch(out, groups=1, threads=1)
        with pytest.raises(hcq.UnsupportedError, match="is not recorded"):
            kernel.record(device.compute.record(), out, groups=1, threads=1, cooperative=True)
