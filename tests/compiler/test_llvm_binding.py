from pathlib import Path

import pytest

from compiler import llvm
from hcq.errors import CompileError
from tests.children import python
from tests.together import together

SMALL = "define void @k(ptr %a) {\nentry:\n  store i32 7, ptr %a\n  ret void\n}\n"


def resident_kib() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * 4


def test_object_is_an_elf_relocatable():
    code = llvm.emit_object(SMALL, llvm.host())
    assert code[:4] == b"\x7fELF"
    assert code[16] == 1


def test_same_text_gives_same_bytes_on_many_threads():
    want = llvm.emit_object(SMALL, llvm.host(), level=1)
    got = together(lambda _: llvm.emit_object(SMALL, llvm.host(), level=1), 8)
    assert got == [want] * 8


@pytest.mark.parametrize(
    ("triple", "cpu", "other"),
    [
        ("x86_64-unknown-linux-gnu", "x86-64-v3", "x86-64"),
        ("nvptx64-nvidia-cuda", "sm_90", "sm_70"),
        ("amdgcn-amd-amdhsa", "gfx1100", "gfx1030"),
    ],
)
def test_code_depends_on_nothing_that_its_target_machine_compiled_before(triple: str, cpu: str, other: str):
    def code(processor: str, level: int = 0, attributes: str = "") -> str:
        text = f"define float @k(float %a) {attributes} {{\n  %b = fadd float %a, 1.0\n  ret float %b\n}}\n"
        return llvm.emit_assembly(text, llvm.Machine(triple, processor), level=level)

    want = code(cpu)
    assert code(other) != want
    code(cpu, 2, f'"target-cpu"="{other}"')
    assert code(cpu) == want


@pytest.mark.slow
@pytest.mark.parametrize("level", [0, 1])
def test_compiling_leaks_nothing(level: int):
    for _ in range(40):
        llvm.emit_object(SMALL, llvm.host(), level=level)

    def grown_kib() -> int:
        before = resident_kib()
        for _ in range(200):
            llvm.emit_object(SMALL, llvm.host(), level=level)
        return resident_kib() - before

    # A leak grows every time; other threads, and the host's large pages, now and then.
    assert any(grown_kib() < 200 * 4 for _ in range(5))


def test_text_that_does_not_parse_is_a_compile_error_with_the_line():
    with pytest.raises(CompileError, match=r"refuses the IR text.*3:"):
        llvm.emit_object("define void @k() {\nentry:\n  nonsense\n}\n", llvm.host())


def test_text_that_does_not_verify_is_a_compile_error():
    bad = "define void @k() {\nentry:\n  %a = add i32 %b, 1\n  %b = add i32 1, 1\n  ret void\n}\n"
    with pytest.raises(CompileError, match="verifier"):
        llvm.emit_object(bad, llvm.host())


def test_the_llvmlite_package_is_never_imported():
    text = f"from compiler import llvm\nimport sys\nllvm.emit_object({SMALL!r}, llvm.host())\n"
    text += "assert 'llvmlite' not in sys.modules"
    python("-c", text)


def test_ptx_is_emitted_for_hopper():
    machine = llvm.Machine("nvptx64-nvidia-cuda", "sm_90a")
    assert ".target sm_90a" in llvm.emit_assembly("define ptx_kernel void @k() {\n  ret void\n}\n", machine)
