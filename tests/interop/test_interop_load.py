"""Loading and launching kernels that others compiled."""

from pathlib import Path

import numpy as np
import pytest
from llvmlite import binding as llvm

import hcq
import interop
from compiler.targets.nvptx.assembler import assemble, ptx_of, without_text

PTX = """// made by hand
.version 8.5
.target sm_80
.address_size 64
.extern .shared .align 16 .b8 dynamic[];
.visible .entry scale(.param .u64 .ptr .global .align 4 out, .param .u64 .ptr .global .align 4 a,
                      .param .f32 factor, .param .u32 n) .reqntid 64
{
  .reg .b32 %r<8>; .reg .f32 %f<4>; .reg .b64 %rd<6>; .reg .pred %p;
  ld.param.u64 %rd0, [out];
  ld.param.u64 %rd1, [a];
  ld.param.f32 %f0, [factor];
  ld.param.u32 %r5, [n];
  mov.u32 %r1, %ctaid.x; mov.u32 %r2, %tid.x; mad.lo.u32 %r3, %r1, 64, %r2;
  setp.ge.u32 %p, %r3, %r5;
  @%p bra done;
  mul.wide.u32 %rd2, %r3, 4;
  add.u64 %rd3, %rd1, %rd2;
  ld.global.f32 %f1, [%rd3];
  mul.f32 %f2, %f1, %f0;
  mul.lo.u32 %r6, %r2, 4; mov.u32 %r7, dynamic; add.u32 %r7, %r7, %r6;
  st.shared.f32 [%r7], %f2; ld.shared.f32 %f2, [%r7];
  add.u64 %rd4, %rd0, %rd2;
  st.global.f32 [%rd4], %f2;
done:
  ret;
}
"""
PAIR = """.version 8.5
.target sm_80
.address_size 64
.visible .entry pair(.param .u64 out, .param .align 4 .b8 both[12]) {
  .reg .b32 %r<3>; .reg .b64 %rd<1>;
  ld.param.u64 %rd0, [out];
  ld.param.u32 %r0, [both]; ld.param.u32 %r1, [both+8]; add.u32 %r2, %r0, %r1;
  st.global.u32 [%rd0], %r2; ret;
}
.visible .entry other() { ret; }
"""
HOST = """
define void @triple(ptr %args, i64 %x, i64 %y, i64 %z) {
  %out = load ptr, ptr %args
  %at = getelementptr i8, ptr %args, i64 8
  %n = load i32, ptr %at
  %t = mul i32 %n, 3
  %to = getelementptr i32, ptr %out, i64 %x
  store i32 %t, ptr %to
  ret void
}
"""


@pytest.fixture(scope="module")
def device():
    with hcq.open("nv-emu:sm_80", validate=True) as opened:
        yield opened


@pytest.fixture(scope="module")
def cubin():
    return without_text(assemble_plain())


def assemble_plain() -> bytes:
    """Return a cubin as ptxas makes it: without this project's section of PTX."""
    full = assemble(PTX, "sm_80")
    return full.replace(b".hcq.ptx", b".old.ptx")


def run(device: hcq.Device, kernel: interop.LoadedKernel, **changed: object) -> np.ndarray:
    x = np.arange(100, dtype=np.float32)
    out, a = interop.empty(device, 100), interop.array(device, x)
    launch: dict = {"groups": 2, "shared": 256} | changed
    kernel.launch(out, a, 2.5, 100, **launch).wait()
    return out.numpy()


@pytest.mark.parametrize("form", ["text", "bytes", "path"])
def test_ptx_loads_and_runs(form: str, device: hcq.Device, tmp_path: Path):
    path = tmp_path / "scale.ptx"
    path.write_text(PTX)
    kernel = interop.load(device, {"text": PTX, "bytes": PTX.encode() + b"\0", "path": str(path)}[form])
    assert run(device, kernel).tolist() == (np.arange(100, dtype=np.float32) * 2.5).tolist()


def test_facts_come_from_the_image(device: hcq.Device):
    found = interop.load(device, PTX).signature
    assert [(one.name, one.offset, one.size) for one in found.parameters] == [
        ("out", 0, 8),
        ("a", 8, 8),
        ("factor", 16, 4),
        ("n", 20, 4),
    ]
    kinds = [one.kind.name for one in found.parameters if one.kind]
    assert kinds == ["POINTER", "POINTER", "FLOAT", "INT"]
    assert found.required_threads == (64, 1, 1)
    assert found.static_shared == 0


def test_cubin_without_ptx_is_refused_on_an_emulated_gpu(device: hcq.Device, cubin: bytes):
    with pytest.raises(hcq.UnsupportedError, match="ptx="):
        interop.load(device, cubin)


def test_cubin_with_its_ptx_runs(device: hcq.Device, cubin: bytes):
    kernel = interop.load(device, cubin, ptx=PTX)
    assert ptx_of(kernel.code) == PTX
    assert run(device, kernel)[99] == 99 * 2.5


def test_ptx_of_another_cubin_is_refused(device: hcq.Device, cubin: bytes):
    with pytest.raises(hcq.UsageError, match="from which this cubin was assembled"):
        interop.load(device, cubin, ptx=PTX.replace(".param .f32 factor", ".param .f64 factor"))


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"threads": 32}, "compiled for"),
        ({"groups": (1, 1, 1, 1)}, "1 to 3 numbers"),
        ({"shared": 1 << 20}, "dynamic shared memory"),
        ({"shared": -1}, "dynamic shared memory"),
    ],
)
def test_wrong_launches_are_refused(changed: dict, words: str, device: hcq.Device):
    with pytest.raises(hcq.UsageError, match=words):
        run(device, interop.load(device, PTX), **changed)


@pytest.mark.parametrize(
    ("position", "value", "words"),
    [(0, 5, "Buffer"), (2, np.float64(1), "4 bytes"), (3, b"12345678", "8 bytes"), (3, None, "a number")],
)
def test_wrong_arguments_are_refused_by_name(position: int, value: object, words: str, device: hcq.Device):
    kernel = interop.load(device, PTX)
    arguments: list = [interop.empty(device, 100), interop.empty(device, 100), 2.5, 100]
    arguments[position] = value
    with pytest.raises(hcq.UsageError, match=f"{kernel.signature.parameters[position].name}.*{words}"):
        kernel.launch(*arguments, groups=1, shared=256)
    with pytest.raises(hcq.UsageError, match="takes 4 arguments"):
        kernel.launch(*arguments[:3], groups=1)


def test_declared_arguments_are_checked_against_the_image(device: hcq.Device):
    interop.load(device, PTX, arguments=["pointer", "pointer", "f32", "u32"])
    for wrong in (["pointer", "pointer", "f32"], ["pointer", "pointer", "i32", "i32"], ["pointer"] * 4):
        with pytest.raises(hcq.UsageError, match="the image has"):
            interop.load(device, PTX, arguments=wrong)


def test_structure_is_passed_as_bytes(device: hcq.Device):
    kernel = interop.load(device, PAIR, entry="pair")
    out = interop.empty(device, 1, np.uint32)
    kernel.launch(out, np.array([5, 6, 7], np.uint32).tobytes(), groups=1, threads=1).wait()
    assert out.numpy()[0] == 12


def test_entry_is_named_where_there_are_several(device: hcq.Device):
    with pytest.raises(hcq.UsageError, match="pair, other"):
        interop.load(device, PAIR)
    with pytest.raises(hcq.UsageError, match="pair, other"):
        interop.load(device, PAIR, entry="missing")


@pytest.mark.parametrize(
    "data", [b"\x50\xed\x55\xba" + bytes(60), b"__CLANG_OFFLOAD_BUNDLE__", b"hello\n", b"no/such/path"]
)
def test_other_bytes_are_refused(data: bytes, device: hcq.Device):
    with pytest.raises(hcq.HcqError, match=r"hint|wanted"):
        interop.load(device, data.decode() if data.startswith(b"no") else data)


def test_host_object_runs_with_declared_arguments():
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(opt=2, reloc="pic", codemodel="small")
    data = machine.emit_object(llvm.parse_assembly(HOST))
    with hcq.open("cpu") as cpu:
        with pytest.raises(hcq.UsageError, match="declare them"):
            interop.load(cpu, data, entry="triple")
        kernel = interop.load(cpu, data, entry="triple", arguments=["pointer", "i32"])
        out = interop.empty(cpu, 4, np.int32)
        kernel.launch(out, -5, groups=4).wait()
        assert out.numpy().tolist() == [-15] * 4
        with pytest.raises(hcq.UnsupportedError, match="does not run on"):
            interop.load(cpu, PTX)
