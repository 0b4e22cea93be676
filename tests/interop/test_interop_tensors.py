"""Tensors as arguments of kernels that others compiled: by address, with the meaning of an assignment."""

from collections.abc import Callable

import pytest
from llvmlite import binding as llvm

import frontend
import hcq
import interop
from frontend import Tensor
from frontend.exposed import memory_of

ADD = """
define void @add(ptr %args, i64 %x, i64 %y, i64 %z) {
  %out = load ptr, ptr %args
  %second = getelementptr i8, ptr %args, i64 8
  %from = load ptr, ptr %second
  %third = getelementptr i8, ptr %args, i64 16
  %n = load i32, ptr %third
  %a = getelementptr i32, ptr %from, i64 %x
  %value = load i32, ptr %a
  %sum = add i32 %value, %n
  %to = getelementptr i32, ptr %out, i64 %x
  store i32 %sum, ptr %to
  ret void
}
"""
"""Element x of the first array becomes that of the second, and a number."""


@pytest.fixture(scope="module")
def kernel() -> interop.LoadedKernel:
    device = frontend.Device["cpu"].hcq
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(opt=2, reloc="pic", codemodel="small")
    code = machine.emit_object(llvm.parse_assembly(ADD))
    return interop.load(device, code, entry="add", arguments=["pointer", "pointer", "i32"])


def numbers(*values: int) -> Tensor:
    return Tensor(list(values), dtype="int32", device="cpu").realize()


def test_a_tensor_is_passed_by_its_address(kernel: interop.LoadedKernel):
    out, x = numbers(0, 0, 0, 0), numbers(1, 2, 3, 4)
    place = out.data_ptr()
    kernel.launch(out, x, 10, groups=4)
    assert out.tolist() == [11, 12, 13, 14]
    assert out.data_ptr() == place
    kernel.launch(out, out, 1, groups=4)
    assert out.tolist() == [12, 13, 14, 15]
    assert x.tolist() == [1, 2, 3, 4]


def test_a_pending_tensor_is_computed_first(kernel: interop.LoadedKernel):
    out, x = numbers(0, 0), numbers(1, 2)
    kernel.launch(out, x * 100, 5, groups=2)
    out += 1
    kernel.launch(out, out, 5, groups=2)
    assert out.tolist() == [111, 211]


def test_tensors_built_before_keep_the_old_value(kernel: interop.LoadedKernel):
    def values(write: Callable[[Tensor, Tensor], object]) -> list[object]:
        out, x = numbers(1, 2), numbers(7, 8)
        before, copy, view = out * 2, out.detach(), out.reshape(2, 1)
        write(out, x)
        return [one.tolist() for one in (before, copy, view, out * 2, out)]

    by_kernel = values(lambda out, x: kernel.launch(out, x, 0, groups=2))
    assert by_kernel == values(lambda out, x: out.assign(x).realize())
    assert by_kernel[0] == [2, 4]
    assert by_kernel[2:] == [[[7], [8]], [14, 16], [7, 8]]


def test_views_follow_and_are_written_through(kernel: interop.LoadedKernel):
    out, x = numbers(1, 2, 3, 4), numbers(7, 8, 9, 10)
    view = out[1:3]
    kernel.launch(out, x, 0, groups=4)
    assert view.tolist() == [8, 9]
    kernel.launch(view, x, 100, groups=2)
    assert view.tolist() == [107, 108]
    assert out.tolist() == [7, 107, 108, 10]
    kernel.launch(out, out, 1, groups=4)
    assert (out.tolist(), view.tolist()) == ([8, 108, 109, 11], [108, 109])


def test_a_launch_on_another_queue_is_ordered_with_the_tensors(kernel: interop.LoadedKernel):
    device = kernel.device
    if len(device.computes) < 2:
        pytest.skip("the device has one compute queue")
    out, x = numbers(0, 0), numbers(1, 2)
    for number in range(5):
        kernel.launch(out, out + x, number, groups=2, queue=device.computes[1])
    assert out.tolist() == [15, 20]


def test_tensors_of_other_devices_and_captures_are_refused(kernel: interop.LoadedKernel):
    out = numbers(0, 0)
    with hcq.open("cpu") as other:
        elsewhere = interop.load(other, kernel.code, entry="add", arguments=["pointer", "pointer", "i32"])
        with pytest.raises(hcq.UsageError, match="where the kernel is"):
            elsewhere.launch(out, out, 1, groups=2)

    @frontend.TinyJit
    def step(t: Tensor) -> Tensor:
        memory_of(t)
        return (t + 1).realize()

    def calls() -> None:
        for _ in range(3):
            step(out)

    with pytest.raises(hcq.UsageError, match="captured"):
        calls()
    with pytest.raises(hcq.UsageError, match="a number"):
        kernel.launch(out, out, out, groups=2)
