"""Tensor maps made on the host, structures with pointers, and the addresses of kernel parameters."""

import dataclasses

import numpy as np
import pytest

import hcq
import interop
from hcq.errors import UnsupportedError, UsageError
from interop import nvidia
from interop.tensor_map import encode

REGS = ".reg .pred %p<8>; .reg .b32 %r<16>; .reg .b64 %rd<16>;"
HEAD = ".version 8.7\n.target sm_90a\n.address_size 64\n"
REPLACE = "tensormap.replace.tile.{}.global.b1024.b{} [%rd1], {};"
"""Where the kernel under test makes a map of a tensor at %rd2 in the 128 bytes at %rd1."""
COPY = """.version 8.7
.target sm_90a
.address_size 64
.visible .entry box(.param .u64 .ptr .global out, .param .align 64 .b8 map[128]) .reqntid 32 { REGS
  .shared .align 1024 .b8 s[1024]; .shared .align 8 .b64 b;
  ld.param.u64 %rd0, [out]; mov.u32 %r0, %tid.x; mad.wide.u32 %rd4, %r0, 4, %rd0; mov.b64 %rd1, map;
  cvta.param.u64 %rd2, %rd1; mov.u32 %r1, s; setp.ne.u32 %p0, %r0, 0; @%p0 bra J;
  mbarrier.init.shared.b64 [b], 1; mbarrier.arrive.expect_tx.shared.b64 _, [b], 1024;
  cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [s], [%rd2, {16, 4}], [b];
W: mbarrier.try_wait.parity.shared.b64 %p2, [b], 0; @!%p2 bra W;
J: bar.sync 0; mad.lo.u32 %r1, %r0, 4, %r1; ld.shared.u32 %r2, [%r1+128]; st.global.u32 [%rd4], %r2; ret;
}
""".replace("REGS", REGS)


def test_maps_equal_those_that_a_kernel_makes():
    lines = [("rank", 32, "2"), ("elemtype", 32, "6"), ("swizzle_mode", 32, "2"), ("fill_mode", 32, "1")]
    lines += [("interleave_layout", 32, "0"), ("global_address", 64, "%rd2")]
    shape, strides, box = (64, 1000, 3), (128, 1 << 37), (32, 200, 1)  # the innermost first, strides in bytes
    for n in range(3):
        lines += [("global_dim", 32, f"{n}, {shape[n]}"), ("box_dim", 32, f"{n}, {box[n]}")]
        lines += [("element_stride", 32, f"{n}, 1")]
    body = "".join(REPLACE.format(*one) for one in lines)
    for n, stride in enumerate(strides):
        body += f"mov.u64 %rd3, {stride};" + REPLACE.format("global_stride", 64, f"{n}, %rd3")
    text = (
        f"{HEAD}.visible .entry make(.param .u64 .ptr .global map, .param .u64 .ptr .global data) .reqntid 1 "
        f"{{ {REGS} ld.param.u64 %rd1, [map]; ld.param.u64 %rd2, [data]; {body} ret; }}"
    )
    with hcq.open("nv-emu:sm_90") as device:
        made, data = interop.array(device, np.zeros(128, np.uint8)), interop.empty(device, 4)
        interop.load(device, text).launch(made, data, groups=1).wait()
        whole = encode(
            data.data_ptr(), element=6, shape=(3, 1000, 64), strides=(1 << 36, 64, 1), box=(1, 200, 32),
            swizzle=2, fill_nan=True,
        )  # fmt: skip
        assert made.numpy().tobytes() == whole


@pytest.mark.parametrize("name", ["nv-emu:sm_90", "nv-emu:sm_120"])
def test_a_map_by_value_loads_a_box(name: str):
    """Parameters begin at 0x210 on sm_90, no multiple of the map's alignment, and at 0x380 on sm_120."""
    tensor = np.arange(64 * 32, dtype=np.uint32).reshape(32, 64)
    with hcq.open(name) as device:
        data, out = interop.array(device, tensor), interop.empty(device, 32, np.uint32)
        text = COPY.replace("sm_90a", device.info.arch).replace("shared::cluster.g", "shared::cta.g")
        kernel = interop.load(device, text)
        map_ = encode(0, element=2, shape=(32, 64), strides=(64, 1), box=(8, 32))
        kernel.launch(out, [data, map_[8:]], groups=1).wait()
        assert np.array_equal(out.numpy(), tensor[5, 16:48])


def test_a_structure_keeps_its_buffers_until_the_launch_is_done():
    head = HEAD.replace("sm_90a", "sm_80")
    text = f"""{head}.visible .entry add(.param .align 8 .b8 all[24]) .reqntid 32 {{ {REGS}
      ld.param.u64 %rd0, [all]; ld.param.u64 %rd1, [all+8]; ld.param.u32 %r1, [all+16]; mov.u32 %r0, %tid.x;
      mad.wide.u32 %rd0, %r0, 4, %rd0; mad.wide.u32 %rd1, %r0, 4, %rd1; ld.global.u32 %r2, [%rd1];
      add.u32 %r2, %r2, %r1; st.global.u32 [%rd0], %r2; ret; }}"""
    with hcq.open("nv-emu:sm_80") as device:
        out = interop.empty(device, 32, np.uint32)
        kernel = interop.load(device, text)
        parts = [out, interop.array(device, np.arange(32, dtype=np.uint32)), b"\7\0\0\0\0\0\0\0"]
        kernel.launch(parts, groups=1)
        parts.clear()  # the array has no other reference
        assert out.numpy().tolist() == list(range(7, 39))
        for wrong, words in (
            ([out, b"1234"], "wanted 24 bytes, saw 12"),
            ([b"1234", out, bytes(12)], "at multiples of 8, a Buffer"),
            ([out, out, 7], "saw 7"),
        ):
            with pytest.raises(UsageError, match=words):
                kernel.launch(wrong, groups=1)


def test_addresses_of_parameters_are_refused_on_hardware():
    with hcq.open("nv-emu:sm_90") as device:
        info = dataclasses.replace(device.info, driver="nv")
    with pytest.raises(UnsupportedError, match=r"\(cvta\.param\)") as caught:
        nvidia.from_ptx(COPY, info, "")
    assert "tl.make_tensor_descriptor" in str(caught.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"strides": (66, 1)}, "multiples of 16 bytes, saw the stride 0x108"),
        ({"strides": (64, 2)}, "last stride of 1"),
        ({"box": (8, 300)}, "1 to 256 there, saw 300"),
        ({"box": (8,)}, "1 to 5 dimensions"),
        ({"element": 13}, "no element type 13"),
        ({"address": 8}, "saw the address 0x8"),
    ],
)
def test_maps_that_the_format_cannot_express_are_refused(change: dict, words: str):
    good = {"address": 0, "element": 2, "shape": (32, 64), "strides": (64, 1), "box": (8, 32)}
    assert len(encode(**good)) == 128
    with pytest.raises(UsageError, match=words):
        encode(**good | change)
