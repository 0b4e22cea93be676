"""The command that runs a program with all checks."""

import dataclasses
import importlib.util
import json
import re
from pathlib import Path

import pytest

from drivers.nv.lines import source_place
from emulator.ir.report import KernelReport, ReportKind, parse
from interop import sanitize
from tests.children import ROOT, python

SCRIPT = '''
import hcq, interop, numpy as np, sys
PTX = """.version 8.5
.target sm_80
.address_size 64
.file 1 "reverse.cu"
.visible .entry reverse(.param .u64 .ptr .global out) {
 .reg .b64 %rd<4>; .reg .b32 %r<9>;
 .shared .align 4 .b8 s[512];
 ld.param.u64 %rd0, [out]; mov.u32 %r0, %tid.x; shl.b32 %r1, %r0, 2; mov.u32 %r2, s; add.u32 %r3, %r2, %r1;
 .loc 1 7 3
 st.shared.u32 [%r3], %r0;
 BARRIER
 .loc 1 9 5
 xor.b32 %r4, %r1, 508; add.u32 %r4, %r4, %r2;
 ld.shared.u32 %r5, [%r4];
 mul.wide.u32 %rd1, %r0, 4; add.u64 %rd2, %rd0, %rd1; st.global.u32 [%rd2], %r5; ret;
}
"""
with hcq.open() as device:
    out = interop.empty(device, 128, np.uint32)
    text = PTX.replace("BARRIER", "bar.sync 0;" if sys.argv[1:] == ["good"] else "")
    interop.load(device, text).launch(out, groups=1, threads=128)
    assert out.numpy().tolist() == list(range(127, -1, -1))
'''


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "program.py"
    path.write_text(SCRIPT)
    return str(path)


def test_missing_barrier_is_named_with_its_source_line(script: str, capsys: pytest.CaptureFixture[str]):
    assert sanitize.main(["--device", "nv-emu:sm_80", "--json", script]) == 1
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    races = {row["source"] for row in rows if row["kind"] == "shared_race"}
    assert races <= {"reverse.cu:7", "reverse.cu:9"}
    assert "reverse.cu:9" in {row["source"] for row in rows}
    assert [row["kind"] for row in rows] == ["shared_race"] * (len(rows) - 1) + ["uninitialised"]
    assert {row["kernel"] for row in rows} == {"reverse"}
    assert all("out = " in row["arguments"][0] for row in rows)
    assert "reverse.cu" in sanitize.text(rows[0])


def test_correct_program_has_no_findings(script: str, capsys: pytest.CaptureFixture[str]):
    assert sanitize.main(["--device", "nv-emu:sm_80", "--json", script, "good"]) == 0
    assert not capsys.readouterr().out


@pytest.mark.parametrize(
    ("body", "status"),
    [("raise ValueError('mine')", 2), ("raise SystemExit(5)", 5), ("raise SystemExit('x')", 1)],
)
def test_failures_of_the_script_itself_have_a_status(body: str, status: int, tmp_path: Path):
    path = tmp_path / "fails.py"
    path.write_text(body)
    assert sanitize.run(str(path), [], "cpu") == (status, [], 0)


HANDLED = (
    SCRIPT.replace("with hcq.open()", "try:\n  with hcq.open()").replace("\n    ", "\n     ")
    + """
except hcq.errors.DeviceFault:
    raise SystemExit(0)
"""
)
LEFT = SCRIPT.partition("    assert ")[0]
UNCLOSED = LEFT.replace("with hcq.open() as device:", "device = hcq.open()\nif True:")


@pytest.mark.parametrize("body", [HANDLED, LEFT, UNCLOSED], ids=["handled", "not waited for", "not closed"])
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_findings_that_the_script_does_not_see_count(body: str, tmp_path: Path):
    path = tmp_path / "program.py"
    path.write_text(body)
    status, found, launches = sanitize.run(str(path), [], "nv-emu:sm_80")
    assert (status, launches) == (1, 1)
    assert "reverse.cu:9" in {row["source"] for row in found}
    assert sanitize.run(str(path), ["good"], "nv-emu:sm_80") == (0, [], 1)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["missing.py"], "wanted the file of a program, saw 'missing.py'"),
        (["--device", "nv", __file__], "only emulated GPUs check and count; try nv-emu or amd-emu"),
        (["--device", "cpu", __file__], "only emulated GPUs check"),
        (["--device", "tpu", __file__], "no device is called 'tpu'"),
        (["--device", "nv-emu:sm_81", __file__], "sm_81"),
    ],
)
def test_mistakes_of_the_command_line(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as caught:
        sanitize.main(arguments)
    assert caught.value.code == 2
    assert words in capsys.readouterr().err


def test_an_option_behind_the_program_is_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "program.py").write_text("")
    assert sanitize.main([str(tmp_path / "program.py"), "--json", "--other"]) == 2
    assert "note: --json after the program is its own" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("", "nothing was checked: the program ran no kernel on an emulated GPU"),
        ("import hcq\nhcq.open('cpu').close()", "nothing was checked"),
        ("import hcq\nhcq.open().close()", "nothing was checked"),
        (SCRIPT + "1 / 0", "failed with status 2; nothing was found before, in 1 l"),
    ],
    ids=["empty", "the host", "no kernel", "a failure"],
)
def test_a_run_that_checked_less_than_it_seems_says_so(
    body: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "program.py").write_text(body)
    assert sanitize.main(["--device", "nv-emu:sm_80", str(tmp_path / "program.py"), "good"]) == 2
    assert words in capsys.readouterr().err


def test_findings_before_the_first_launch_count(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(sanitize, "run", lambda *_: (1, [{"kind": "host"}], 0))
    assert sanitize.main(["--json", __file__]) == 1
    said = capsys.readouterr()
    assert (json.loads(said.out), said.err) == ({"kind": "host"}, "")


@pytest.mark.parametrize("address", [None, 0x1234])
def test_findings_are_read_back_from_their_text(address: int | None):
    first = KernelReport(
        kind=ReportKind.OUT_OF_BOUNDS, kernel="k", line=3, instruction="ld.global.u32 %r1, [%rd1]",
        block=(1, 2, 3), thread=(4, 5, 6), access="" if address is None else "read", address=address,
        size=0 if address is None else 4, nearest="16 bytes at 0x1000",
    )  # fmt: skip
    second = KernelReport(
        kind=ReportKind.SHARED_RACE, kernel="k", line=9, instruction="st.shared.u32 [%r1], %r2",
        block=(0, 0, 0), thread=(1, 0, 0), access="write", address=4, size=4,
        nearest="shared memory of 64 bytes",
        other="line 3: ld.shared.u32 %r1, [%r2]; thread (0, 0, 0)",
    )  # fmt: skip
    text = f"head: {first}; source: a.py:7; pc 0x10\nalso: {second}; source: a.py:8"
    assert parse(text) == [(first, "a.py:7"), (second, "a.py:8")]


def test_a_name_of_the_kernel_behind_a_finding_replaces_that_of_its_machine_code():
    found = KernelReport(
        kind=ReportKind.TRAP, kernel="code_12ab", line=64, instruction="s_trap 2", block=(0, 0, 0),
        thread=(0, 0, 0), access="", address=None, size=0, nearest="",
    )  # fmt: skip
    named = dataclasses.replace(found, kernel="blur")
    assert parse(f"{found}; source: a.py:7; kernel: blur; pc 0x10") == [(named, "a.py:7")]
    assert parse(f"{found}; kernel: blur; pc 0x10; at a packet") == [(named, "")]


def test_source_place_is_that_of_the_nearest_loc():
    ptx = '.file 1 "a.py"\n.entry f {\n.loc 1 5 2\nadd;\nmul;\n.loc 1 9 2\nst;\n}\n.entry g {\nadd;\n}'
    assert [source_place(ptx, line) for line in (5, 7, 10)] == ["a.py:5", "a.py:9", ""]


def test_source_place_of_inline_assembly_is_that_before_it():
    ptx = (
        '.file 1 "a.py"\n.entry f {\n.loc 1 5 2\n// begin inline asm\n.loc 1 5 2\nmov;\n.loc 1 6 2\nld;\n'
        "// end inline asm\nadd;\n.loc 1 8 2\nst;\n}\n"
    )
    assert [source_place(ptx, line) for line in (6, 8, 12)] == ["a.py:5", "a.py:5", "a.py:8"]


def test_source_place_of_inlined_code_is_in_the_file_of_the_kernel():
    ptx = (
        '.file 1 "mine.cu"\n.file 2 "header.h"\n.entry f {\n.loc 1 5 2\nadd;\n'
        ".loc 2 70 9, function_name a, inlined_at 1 9 3\nmul;\n"
        ".loc 2 30 1, function_name b, inlined_at 2 70 9\nst;\n"
        ".loc 1 40 1, function_name own, inlined_at 1 12 3\nld;\n}\n"
    )
    assert [source_place(ptx, line) for line in (7, 9, 11)] == ["mine.cu:9", "mine.cu:9", "mine.cu:40"]


def without_numbers(text: str) -> str:
    """Leave out addresses, registers and lines of the PTX, which change with Triton's version."""
    return re.sub(r"0x[0-9a-f]+|%\w+|line \d+|thread \([^)]*\)", "#", text)


def test_the_race_that_the_readme_shows_is_found(tmp_path: Path) -> None:
    if importlib.util.find_spec("triton") is None:
        pytest.skip("Triton is not installed: pip install 'hcq[triton]'")
    script = "examples/triton_race.py"
    done = python("-m", "interop.sanitize", script, status=None, TRITON_CACHE_DIR=str(tmp_path))
    assert done.returncode == 1, done.stderr
    shown = (ROOT / "README.md").read_text().partition("examples/triton_race.py\n")[2].partition("```")[0]
    for line in shown.splitlines():
        assert without_numbers(line) in without_numbers(done.stdout)
