"""Uses the Triton plug-in as Triton does: loads a binary, launches it with several kinds of arguments.

Run by test_interop_triton.py with the stand-in of Triton's interface; argument: a folder for the cache.
"""

import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import triton
from triton.runtime.jit import TensorWrapper

import hcq
import interop
import interop.triton_backend as backend
from compiler.targets.nvptx.assembler import assemble
from interop.tensor_map import encode
from interop.triton_backend.compiler import HcqCompiler
from interop.triton_backend.launcher import encoded

PTX = """.version 8.5
.target sm_80
.address_size 64
.visible .entry scale(.param .u64 .ptr .global out, .param .u64 .ptr .global a, .param .f32 factor,
  .param .u32 n, .param .u64 .ptr .global scratch, .param .u64 .ptr .global profile) .reqntid 64
{
  .reg .b32 %r<8>; .reg .f32 %f<4>; .reg .b64 %rd<6>; .reg .pred %p;
  ld.param.u64 %rd0, [out]; ld.param.u64 %rd1, [a]; ld.param.f32 %f0, [factor]; ld.param.u32 %r5, [n];
  mov.u32 %r1, %ctaid.x; mov.u32 %r2, %tid.x; mad.lo.u32 %r3, %r1, 64, %r2;
  setp.ge.u32 %p, %r3, %r5;
  @%p ret;
  mul.wide.u32 %rd2, %r3, 4; add.u64 %rd3, %rd1, %rd2; ld.global.f32 %f1, [%rd3];
  mul.f32 %f2, %f1, %f0; add.u64 %rd4, %rd0, %rd2; st.global.f32 [%rd4], %f2;
  ret;
}
"""


class HostTensor:
    """A tensor of PyTorch on the CPU, as far as a launch looks at it."""

    def __init__(self, values):
        self.values, self.shape = values, values.shape
        self.device = "cpu"

    def data_ptr(self):
        return self.values.ctypes.data

    def stride(self):
        return tuple(step // self.values.itemsize for step in self.values.strides)

    def numel(self):
        return self.values.size

    def element_size(self):
        return self.values.itemsize


folder = Path(sys.argv[1])
(folder / "scale.ptx").write_text(PTX)
device = backend.use("nv-emu:sm_80")
driver = triton.runtime.driver.active
number = driver.get_current_device()
assert (driver.get_current_target().backend, driver.get_current_target().arch) == ("cuda", 80)
assert driver.get_device_capability() == (8, 0)
assert driver.utils.get_device_properties(number)["max_shared_mem"] == device.info.limits["max_shared_bytes"]
assert not HcqCompiler.supports_target(driver.get_current_target())
assert driver.map_python_to_cpp_type("*fp32") == "uint64_t"
assert driver.map_python_to_cpp_type("i1") == "int8_t"

cubin = assemble(PTX, "sm_80")
module, function, registers, spills, threads = driver.utils.load_binary("scale", cubin, 0, number)
assert registers > 0
assert (spills, threads) == (0, 64)
signature = {"out": "*fp32", "a": "*fp32", "pair": ("fp32", "constexpr"), "n": "i32", "BLOCK": "constexpr"}
facts = {"hash": str(folder), "num_warps": 2, "warp_size": 32, "shared": 0, "global_scratch_size": 128}
launcher = driver.launcher_cls(SimpleNamespace(name="scale", signature=signature), SimpleNamespace(**facts))
calls = []


def launch(out, a, n, groups=2, made=launcher):
    made(groups, 1, 1, 0, function, None, "facts", calls.append, calls.append, out, a, (2.5, 7), n, 64)


x = np.arange(100, dtype=np.float32)
out = interop.empty(device, 100)
launch(out, interop.array(device, x), 100)
assert out.numpy().tolist() == (x * 2.5).tolist()
assert calls == ["facts", "facts"]

both = np.concatenate([np.zeros(100, np.float32), x])
launch(HostTensor(both[:100]), HostTensor(both[100:]), 100)
assert both[:100].tolist() == (x * 2.5).tolist()
before = both.copy()
launch(TensorWrapper(HostTensor(both[:100]), "fp32"), HostTensor(both[100:]), 100)  # `triton.reinterpret`
launch(HostTensor(both[90:]), HostTensor(both), 5)  # views of one tensor overlap
assert both[90:95].tolist() == (before[:5] * 2.5).tolist()
launch(None, None, 0, groups=0)


def refused(action, words):
    try:
        action()
    except hcq.HcqError as error:
        assert words in str(error), error
    else:
        raise AssertionError(words)


elsewhere = HostTensor(x)
elsewhere.device = "cuda:0"
refused(lambda: launch(out, elsewhere, 100), "another driver")
refused(lambda: launch(out, x, 100), "interop.array")
clustered = driver.launcher_cls(
    SimpleNamespace(name="scale", signature=signature), SimpleNamespace(**facts, num_ctas=2)
)
refused(lambda: launch(out, out, 100, made=clustered), "sm_90")
together = driver.launcher_cls(
    SimpleNamespace(name="scale", signature=signature), SimpleNamespace(**facts, launch_cooperative_grid=True)
)
launch(out, out, 100, made=together)
refused(lambda: launch(out, out, 100, groups=100_000, made=together), "cooperative grid of 100000")
refused(lambda: backend.use("cpu"), "Triton compiles for GPUs")
assert encoded("bf16", 1.0) == 0x3F80
assert encoded("u8", 255) == -1
assert encoded("i1", True) == 1

MAPS = """.version 8.5
.target sm_80
.address_size 64
.visible .entry maps(.param .u64 .ptr .global out, .param .align 64 .b8 map[128], .param .u32 rows,
  .param .u32 columns, .param .u64 row_stride, .param .u64 column_stride, .param .u64 .ptr .global scratch,
  .param .u64 .ptr .global profile) .reqntid 64
{
  .reg .b32 %r<8>; .reg .b64 %rd<6>; .reg .pred %p;
  ld.param.u64 %rd0, [out]; mov.u32 %r0, %tid.x; setp.ne.u32 %p, %r0, 0; @%p ret;
  ld.param.u32 %r1, [rows]; ld.param.u32 %r2, [columns]; ld.param.u64 %rd1, [row_stride];
  st.global.u32 [%rd0+128], %r1; st.global.u32 [%rd0+132], %r2; st.global.u64 [%rd0+136], %rd1;
  WORDS
  ret;
}
""".replace(
    "WORDS",
    "".join(f"ld.param.u64 %rd2, [map+{n}]; st.global.u64 [%rd0+{n}], %rd2;\n" for n in range(0, 128, 8)),
)
(folder / "maps").mkdir()
(folder / "maps" / "maps.ptx").write_text(MAPS)
_, function, *_ = driver.utils.load_binary("maps", assemble(MAPS, "sm_80"), 0, number)
about = {"swizzle": 3, "elem_size": 4, "elem_type": 7, "block_size": [16, 32], "fp4_padded": False}
mapped = driver.launcher_cls(
    SimpleNamespace(name="maps", signature={"out": "*fp32", "map": "tensordesc<fp32[16, 32]>"}),
    SimpleNamespace(**facts | {"hash": str(folder / "maps")}, tensordesc_meta=[about]),
)
tensor, words = interop.array(device, np.zeros((40, 32), np.float32)), interop.empty(device, 36, np.uint32)
descriptor = SimpleNamespace(
    base=tensor, shape=[40, 32], strides=[32, 1], padding="zero", round_f32_to_tf32=False
)
mapped(1, 1, 1, 0, function, None, None, None, None, words, descriptor)
found = words.numpy()
whole = encode(tensor.data_ptr(), element=7, shape=[40, 32], strides=[32, 1], box=[16, 32], swizzle=3)
assert found[:32].tobytes() == whole
assert found[32:].tolist() == [40, 32, 32, 0]
about["is_im2col"] = True
refused(lambda: mapped(1, 1, 1, 0, function, None, None, None, None, words, descriptor), "is_im2col")

times = driver.get_benchmarker()(lambda: launch(out, out, 100), quantiles=(0.5, 0.2, 0.8))
assert len(times) == 3
assert min(times) > 0
assert len(set(times)) == 1  # the estimate of the counters, which no load of the machine changes
driver.clear_cache(driver.get_empty_cache_for_benchmark())
driver.utils.unload_module(module)
device.close()
print("done")
