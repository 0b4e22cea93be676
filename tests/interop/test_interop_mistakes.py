"""Mistakes with others' kernels: each is refused with what was wanted, what was seen, what to try."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hcq
import interop
from hcq.errors import CompileError, UnsupportedError, UsageError

PTX = """.version 8.5
.target sm_80
.address_size 64
.visible .entry scale(.param .u32 n, .param .f32 factor, .param .u64 out) {
  .reg .b64 %rd<2>; .reg .f32 %f<2>;
  ld.param.u64 %rd0, [out]; ld.param.f32 %f0, [factor]; st.global.f32 [%rd0], %f0; ret;
}
"""
MANGLED = PTX.replace("scale", "_Z5scalejfPf")


class HostTensor:
    """A tensor of another library in memory of the host."""

    def data_ptr(self) -> int:
        return 0x1000


DEVICE = "nv-emu:sm_80"


@pytest.fixture(scope="module")
def launch(device: hcq.Device) -> Callable[..., Any]:
    kernel = interop.load(device, PTX)
    out = interop.empty(device, 4)

    def call(*values: object, **options: Any) -> Any:
        return kernel.launch(*(values or (4, 2.5, out)), **{"groups": 1, "threads": 4} | options)

    call()
    return call


@pytest.mark.parametrize(
    ("values", "seen", "hint"),
    [
        ((4, 2.5, np.ones(4, np.float32)), "a ndarray in memory of the host", "interop.array(device, value)"),
        ((4, 2.5, HostTensor()), "a HostTensor in memory of the host", "interop.array(device, value)"),
        ((4, 2.5, 2.5), "wanted a Buffer, a DeviceArray, None or an integer, saw 2.5", "the image has: n"),
        ((4, np.float64(2.5), None), "wanted a number of 4 bytes", "the image has: n"),
        ((4, 2.5), "takes 3 arguments, 2 were given", "out: pointer or integer of 8 bytes"),
        ((4.0, 2.5, None), "wanted an integer of 32 bits", "seen 4.0"),
        ((1 << 40, 2.5, None), "wanted an integer of 32 bits", "seen 1099511627776"),
    ],
)
def test_a_wrong_argument_is_refused(
    launch: Callable[..., Any], values: tuple[object, ...], seen: str, hint: str
):
    with pytest.raises(UsageError) as caught:
        launch(*values)
    assert seen in str(caught.value)
    assert hint in str(caught.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"groups": 1024 / 256}, "groups: wanted 1 to 3 integers, saw 4.0; try //"),
        ({"groups": (1, 2.0)}, "groups: wanted 1 to 3 integers, saw (1, 2.0)"),
        ({"groups": "4"}, "groups: wanted 1 to 3 integers, saw '4'"),
        ({"groups": None}, "groups: wanted 1 to 3 integers, saw None"),
        ({"groups": -1}, "groups: wanted 1 to 3 numbers of at least 1, saw -1"),
        ({"groups": 0}, "(0, 1, 1) groups, wanted at least 1"),
        ({"groups": (1, 1, 1, 1)}, "groups: wanted 1 to 3 numbers"),
        ({"threads": None}, "the image requires no workgroup size; pass threads="),
        ({"threads": 2048}, "at most 1024 threads a workgroup, saw (2048, 1, 1)"),
        ({"threads": (1, 1, 128)}, "at most (1024, 1024, 64) threads along x, y and z, saw (1, 1, 128)"),
        ({"shared": 1 << 20}, "0 bytes of static and 1048576 of dynamic shared memory"),
    ],
)
def test_a_wrong_shape_is_refused(launch: Callable[..., Any], options: dict[str, Any], words: str):
    with pytest.raises(UsageError, match=re.escape(words)):
        launch(**options)


def test_a_mangled_entry_has_a_hint(device: hcq.Device):
    with pytest.raises(UsageError, match=r'it has: _Z5scalejfPf\nhint: declare it extern "C"'):
        interop.load(device, MANGLED, entry="scale")


def test_a_source_in_the_place_of_ptx_has_a_hint(device: hcq.Device):
    with pytest.raises(UsageError, match=r"interop\.cuda\.to_ptx\(source"):
        interop.load(device, 'extern "C" __global__ void k(float *y)\n{ y[0] = 1; }\n')


@pytest.mark.parametrize("target", ["sm_90", "sm_90a", "sm_75a"])
def test_ptx_of_another_architecture_is_refused(device: hcq.Device, target: str):
    with pytest.raises(UnsupportedError, match=f"for {target}.*is sm_80") as caught:
        interop.load(device, PTX.replace("sm_80", target))
    assert f"hint: compile for sm_80, or open a GPU of {target}" in str(caught.value)


def test_ptx_on_a_gpu_of_another_vendor_is_refused():
    with (
        hcq.open("amd-emu:gfx1100") as other,
        pytest.raises(UnsupportedError, match=r"PTX does not run on amd-emu:0.*\nhint: open nv or nv-emu"),
    ):
        interop.load(other, PTX)


def test_arrays_hold_numbers(device: hcq.Device):
    for values, words in ((["a", "b"], "elements of type <U1"), ([None], "elements of type object")):
        with pytest.raises(UsageError, match=words):
            interop.array(device, values)


WRONG: list[tuple[Callable[[Any, Any], object], str]] = [
    (lambda _d, _k: interop.load(None, PTX), "wanted an open device, saw None"),  # type: ignore[arg-type]
    (lambda d, _k: interop.load(d, 5), "wanted the path of an image, its bytes, or PTX as text, saw 5"),
    (lambda d, _k: interop.load(d, [PTX]), "wanted the path of an image, its bytes, or PTX as text"),
    (lambda d, _k: interop.load(d, b".version 8.5\n\xff\xfe"), "wanted PTX as UTF-8"),
    (lambda d, _k: interop.load(d, PTX, arguments="pointer"), "wanted a list of types.* saw 'pointer'"),
    (lambda d, _k: interop.load(d, PTX, arguments=[5]), r"wanted a list of types.* saw \[5\]"),
    (lambda d, _k: interop.load(d, PTX, output_bytes=-1), "output_bytes: wanted an int of at least 0"),
    (lambda d, _k: interop.load(d, PTX, ptx=5), "wanted texts as entry= and ptx=, saw '' and 5"),
    (lambda _d, k: k.launch(1, 2.0, None, groups=1, threads=4, shared="x"), "shared: wanted a number"),
    (lambda d, k: k.launch(1, 2.0, None, groups=1, threads=4, queue=d), "queue: wanted a queue"),
    (lambda _d, k: k.record(None, 1, 2.0, None, groups=1, threads=4), "wanted a command buffer, saw None"),
    (lambda _d, _k: interop.array(None, [1]), "wanted an open device, saw None"),  # type: ignore[arg-type]
    (lambda d, _k: interop.array(d, [[1], [2, 3]]), "wanted lists of equal lengths"),
    (lambda d, _k: interop.empty(d, -1), "shape: wanted lengths of at least 0, saw -1"),
    (lambda d, _k: interop.empty(d, (2, "a")), r"shape: wanted an int or a sequence of ints, saw \(2, 'a'\)"),
    (lambda d, _k: interop.empty(d, 1.5), "shape: wanted an int or a sequence of ints, saw 1.5"),
    (lambda d, _k: interop.empty(d, 4).copy_(5), "wanted a DeviceArray, saw 5\nhint: interop.copy"),
    (lambda d, _k: interop.empty(d, 4).stride(7), "wanted an axis from -1 to 0, saw 7"),
    (lambda d, _k: interop.empty(d, 4).size("x"), "wanted an axis from -1 to 0, saw 'x'"),
]


@pytest.mark.parametrize(("call", "words"), WRONG)
def test_a_call_with_another_class_is_refused(
    device: hcq.Device, call: Callable[[Any, Any], object], words: str
):
    kernel = interop.load(device, PTX)
    with pytest.raises(UsageError, match=f"(?s){words}"):
        call(device, kernel)


def test_nvrtc_compiles_for_nvidia_only():
    from interop import cuda

    with pytest.raises(UnsupportedError, match="saw 'gfx1100'"):
        cuda.to_ptx("", "gfx1100")


@pytest.mark.parametrize(
    "parameter",
    [
        ".param .align 0 .b8 p[8]",
        ".param .align 3 .b8 p[8]",
        ".param .u64 .ptr .global .align 8 .align 0 p",
        ".param .b8 p[0]",
        ".param .b8 p[99999999999]",
        f".param .b8 p[{'9' * 5000}]",
        ".param .u0 p",
        ".param .u24 p",
    ],
)
def test_numbers_of_parameters_that_ptx_does_not_allow_are_refused(device: hcq.Device, parameter: str):
    text = PTX.replace(".param .u32 n", parameter)
    with pytest.raises((UsageError, CompileError)):
        interop.load(device, text)


@pytest.mark.parametrize("limits", [".maxntid 0", ".reqntid 0, 1, 1", f".maxntid {'9' * 5000}"])
def test_limits_of_threads_that_ptx_does_not_allow_are_refused(device: hcq.Device, limits: str):
    with pytest.raises((UsageError, CompileError)):
        interop.load(device, PTX.replace(".u64 out) {", f".u64 out) {limits} {{"))


def test_cuda_for_a_processor_names_the_emulated_gpu():
    with pytest.raises(UnsupportedError, match="nv-emu"):
        interop.cuda.to_ptx("", "x86_64-avx2")
