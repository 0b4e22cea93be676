"""The recorder of silicon: resumption, shards, failures of forms, damaged files, and differences by name."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

import hcq
from tests.facts import ptx_table
from tests.tools import ptx_coverage
from tools.record import __main__ as program
from tools.record.compare import agreeing, compared
from tools.record.forms import Allowed, Result, grid
from tools.record.nv import build, manual, vendor
from tools.record.recording import Journal, Recording, load, packed
from tools.record.runner import Opened, Recorder, shards
from tools.record.vendors import vendor_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tools.record.forms import Form

ARCH = "sm_90a"
HEAD = {
    "device": "Emulated H200", "arch": ARCH, "driver": "nv-emu, emulated", "commit": "", "date": "",
    "tool": "",
}  # fmt: skip
ULP = Allowed("ulp", 2, "PTX ISA: at most 1 ulp")


def form(name: str) -> Form:
    """Return a form by its name."""
    return next(one for one in vendor.forms(ARCH) if one.name == name)


def some() -> list[Form]:
    """Return four forms."""
    return [form(name) for name in ("add.u32", "sub.u32", "popc.b32", "addc.cc.u32 addc")]


@pytest.fixture(scope="module")
def opened() -> Iterator[Opened]:
    with Opened("nv-emu") as device:
        yield device


class Closed(Opened):
    """A device that nothing may open."""

    def get(self) -> hcq.Device:
        raise AssertionError("the device was opened")


@pytest.fixture
def made(tmp_path: Path, opened: Opened) -> Iterator[Callable[..., Recorder]]:
    """Make a recorder that writes to a file of the test."""
    journals = []

    def make(name: str = "a.jsonl", device: Opened = opened, folder: Path | None = None) -> Recorder:
        journals.append(Journal(tmp_path / name, HEAD))
        return Recorder(vendor.VENDOR, device, journals[-1], folder, 600.0, lambda _: None)

    yield make
    for journal in journals:
        journal.close()


def test_recorded_forms_are_not_run_again(made: Callable[..., Recorder]):
    first = made()
    assert first.record([some()[:2]])
    again = made(device=Closed("nv-emu"))
    assert again.record([some()[:2]])
    assert again.journal.recording.results == first.journal.recording.results
    with pytest.raises(AssertionError, match="was opened"):
        again.record([some()])


def test_results_are_those_of_the_instructions(made: Callable[..., Recorder]):
    recorder = made()
    recorder.record([some()])
    results = recorder.journal.recording.results
    add, carries = form("add.u32"), form("addc.cc.u32 addc")
    a, b = add.inputs.T.astype("u4")
    np.testing.assert_array_equal(add.columns(results["add.u32"][1])[0], a + b)
    whole = carries.inputs.sum(1)  # two numbers and the carry before
    total, carry = carries.columns(results[carries.name][1])
    np.testing.assert_array_equal(total, whole.astype("u4"))
    np.testing.assert_array_equal(carry, whole >> 32)


def test_the_limit_of_time_is_kept_before_a_shard_begins(made: Callable[..., Recorder]):
    recorder = made(device=Closed("nv-emu"))
    assert not recorder.record([some()], limit_s=-1)
    assert not recorder.journal.recording.results


def test_shards_hold_every_form_once_and_the_most_doubtful_first():
    forms = vendor.forms(ARCH)
    cut = shards(forms)
    assert sorted(one.name for part in cut for one in part) == sorted(one.name for one in forms)
    doubts = [one.doubt for part in cut for one in part]
    assert doubts == sorted(doubts, reverse=True)
    options = program.parse(["--forms", "--shards", "2/3"])
    assert program.chosen_forms(vendor.VENDOR, ARCH, options) == cut[1::3]


def test_a_form_that_fails_leaves_the_results_of_the_others(made: Callable[..., Recorder]):
    bad = replace(form("not.b32"), name="bad", text="tex.bad $d0, $a0;")
    recorder = made()
    recorder.record([[*some(), bad]])
    recording = recorder.journal.recording
    assert set(recording.results) == {one.name for one in some()}
    assert recording.errors["bad"][1].startswith("CompileError: ")


def test_a_form_that_ended_the_process_runs_alone_and_then_not_again(made: Callable[..., Recorder]):
    forms = some()
    killed = made()
    killed.journal.begin(one.name for one in forms[:2])
    recorder = made()
    recorder.record([[]])  # nothing of what was asked for is unfinished
    assert not recorder.journal.recording.results
    recorder.record([forms[:1]])
    assert set(recorder.journal.recording.results) == {"add.u32"}
    recorder.journal.begin(["sub.u32"])
    alone = made(device=Closed("nv-emu"))
    alone.record([forms[:2]])
    assert alone.journal.recording.errors["sub.u32"][1] == "the process ended while it ran, alone"


def recording_of(form: Form, values: list[int]) -> Recording:
    """Return a recording of one form with one column."""
    return Recording(dict(HEAD), {form.name: (form.key(), np.array(values, "<u4").tobytes())})


def small(allowed: Allowed, values: int) -> Form:
    """Return a form with one float32 result for each of some inputs."""
    result = Result("d", "f32", allowed)
    return replace(form("not.b32"), inputs=grid(("u32",))[:values], results=(result,))


def test_a_difference_names_form_input_and_both_results(made: Callable[..., Recorder]):
    recorder = made()
    recorder.record([some()])
    emulated = recorder.journal.recording
    silicon = Recording(dict(HEAD), dict(emulated.results))
    key, results = silicon.results["popc.b32"]
    silicon.results["popc.b32"] = key, bytes([results[0] ^ 5]) + results[1:]
    found = compared(silicon, emulated, some())
    assert not found.agrees
    assert found.equal == 3
    assert found.lines()[0] == (
        "popc.b32: row 0: u32 0x00000000: d: silicon 0x00000005, emulated 0x00000000 (must be equal)"
    )


def test_a_result_may_differ_by_what_its_rule_allows():
    one = 0x3F800000
    form = small(ULP, 4)
    silicon = recording_of(form, [one, one, 0x7FFFFFFF, 0x80000001])
    near = recording_of(form, [one + 2, one - 2, 0x7FC00000, 0x00000001])
    assert compared(silicon, near, [form]).agrees
    far = recording_of(form, [one + 3, one, 0x7FFFFFFF, 0x80000001])
    (line, _) = compared(silicon, far, [form]).lines()
    assert "3 ulp apart; allowed ulp 2: PTX ISA: at most 1 ulp" in line
    no_nan = recording_of(form, [one, one, one, 0x80000001])
    assert not compared(silicon, no_nan, [form]).agrees


@pytest.mark.parametrize(
    ("type_", "allowed", "mine", "its", "agrees"),
    [
        ("f16x2", ULP, 0x3C003C00, 0x3C023BFE, True),
        ("f16x2", ULP, 0x3C003C00, 0x3C033C00, False),
        ("bf16x2", ULP, 0x3F803F80, 0x3F803F83, False),
        ("f64", ULP, 0x3FF0000000000000, 0x3FF0000000000002, True),
        ("f32", Allowed("absolute", 0.5, "rule"), 0x3F800000, 0x3FC00000, True),
        ("f32", Allowed("absolute", 0.5, "rule"), 0x3F800000, 0x3FC00001, False),
        ("f32", Allowed("absolute", 0.5, "rule"), 0x7F800000, 0x7F800000, True),
        ("f32", Allowed("absolute", 0.5, "rule"), 0x7F800001, 0x3F800000, False),  # a signalling NaN
        ("bf16", Allowed("absolute", 0.5, "rule"), 0x3F80, 0x3FC0, True),
        ("u32", Allowed("zero", rule="never"), 0, 0, True),
        ("u32", Allowed("zero", rule="never"), 1, 1, False),
        ("u32", Allowed("free", rule="a clock"), 1, 2, True),
        ("u32", Allowed(), 1, 2, False),
    ],
)
def test_rules_of_types(type_: str, allowed: Allowed, mine: int, its: int, agrees: bool):  # noqa: FBT001
    size = {"f16x2": 4, "bf16x2": 4, "f64": 8, "f32": 4, "bf16": 2, "u32": 4}[type_]
    columns = [np.array([one], f"<u{size}") for one in (mine, its)]
    assert bool(agreeing(Result("d", type_, allowed), *columns)[0]) is agrees


def test_what_changed_or_is_missing_is_named_and_no_difference():
    form, other = small(ULP, 2), small(ULP, 3)
    silicon = recording_of(form, [1, 2])
    found = compared(silicon, recording_of(other, [5, 6, 7]), [other, replace(form, name="new")])
    assert found.agrees
    assert (found.changed, found.absent) == ([form.name], ["new"])
    failed = Recording(dict(HEAD), errors={form.name: (form.key(), "it hung")})
    assert compared(silicon, failed, [form]).one_sided == {
        form.name: "the emulated GPU has no results: it hung"
    }


def test_a_rule_is_stated_wherever_results_may_differ():
    with pytest.raises(ValueError, match="needs the rule"):
        Allowed("ulp", 2)


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """A journal of two forms."""
    with Journal(tmp_path / "two.jsonl", HEAD) as journal:
        journal.result("a", "1", b"first")
        journal.result("b", "2", bytes(range(256)))
    return tmp_path / "two.jsonl"


def test_a_journal_that_ends_in_a_line_loses_that_line_alone(journal: Path):
    data = journal.read_bytes()
    journal.write_bytes(data[:-9])
    assert load(journal).results == {"a": ("1", b"first")}
    with Journal(journal, HEAD) as again:
        again.result("c", "3", b"third")
    assert set(load(journal).results) == {"a", "c"}


def test_a_damaged_file_is_refused(tmp_path: Path, journal: Path):
    kept = tmp_path / "kept.xz"
    data = packed(load(journal))
    kept.write_bytes(data)
    assert load(kept).results == load(journal).results
    text = journal.read_bytes().splitlines(keepends=True)
    damaged = [data[: len(data) // 2], data[:60] + b"x" + data[61:], b"", b"{}\n", b"".join(text[1:])]
    damaged.append(text[0] + text[1].replace(b'"results": "', b'"results": "x') + text[2])
    for content in damaged:
        kept.write_bytes(content)
        with pytest.raises(hcq.UsageError, match="is no whole recording") as error:
            load(kept)
        assert "hint: " in str(error.value)


def test_a_journal_of_another_gpu_is_not_continued(journal: Path):
    with pytest.raises(hcq.UsageError, match="recorded with arch 'sm_90a', this is 'sm_80'"):
        Journal(journal, {**HEAD, "arch": "sm_80"})


def test_a_recording_of_an_emulated_gpu_is_not_kept(journal: Path, capsys: pytest.CaptureFixture[str]):
    assert program.main(["--keep", str(journal)]) == 2
    assert "wanted a recording of a real GPU" in capsys.readouterr().err


def test_prepared_kernels_need_no_assembler(tmp_path: Path, made: Callable[..., Recorder]):
    few = [form for form in vendor.forms(ARCH) if "cc" in form.name][:1]
    (pack,) = (one for one in vendor._packs(ARCH) if few[0].name in one.at)
    assert vendor.prepare(few, ARCH, tmp_path) == 1
    assert vendor.prepare(few, ARCH, tmp_path) == 0
    build._assembled.cache_clear()
    recorder = made(folder=tmp_path)
    recorder.record([few])
    assert build._assembled.cache_info().misses == 0
    alone = made("b.jsonl")
    alone.record([few])
    assert recorder.journal.recording.results == alone.journal.recording.results
    assert len(pack.forms) > 1  # the others had no rows


def test_the_command_records_compares_and_finds_a_planted_difference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    out = tmp_path / "a.jsonl"
    few = ["--device", "nv-emu", "--only", r"^(clz|popc)\.b32$"]
    assert program.main([*few, "--out", str(out), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["forms"], told["whole"], told["errors"]) == (2, True, {})
    assert program.main([*few, "--compare", str(out)]) == 0
    assert re.match(r"2 forms agree \(\d+ results\)", capsys.readouterr().out)
    planted = load(out)
    key, results = planted.results["clz.b32"]
    with Journal(tmp_path / "b.jsonl", planted.head) as journal:
        journal.result("clz.b32", key, results[:4] + b"\x07" + results[5:])
        journal.result("popc.b32", *planted.results["popc.b32"])
    assert program.main([*few, "--compare", str(tmp_path / "b.jsonl")]) == 1
    assert capsys.readouterr().out.startswith(
        "clz.b32: row 1: u32 0x00000001: d: silicon 0x00000007, emulated 0x0000001f"
    )


def test_a_device_without_a_recorder_is_refused():
    with pytest.raises(hcq.UnsupportedError, match="cpu has no recorder"):
        vendor_of("cpu")


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_120a"])
def test_names_and_keys_of_forms_are_unique(arch: str):
    forms = vendor.forms(arch)
    assert len({one.name for one in forms}) == len({one.key() for one in forms}) == len(forms)


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_120a"])
def test_every_ptx_form_has_a_recorded_one(arch: str) -> None:
    """Of opcodes, the reference page and kept kernels."""
    assert ptx_coverage.uncovered(vendor.forms(arch), arch) == []


def test_kept_texts_are_those_of_the_table() -> None:
    assert len(manual.rows()) > 5000
    assert ptx_table.texts() == [json.dumps(row) + "\n" for row in manual.rows()]


@pytest.mark.slow
def test_a_forgotten_form_is_named() -> None:
    """Without its forms an instruction is named by the table of opcodes, and by the reference page."""
    gone = ("elect.sync", "sad.s32")
    kept = [one for one in vendor.forms(ARCH) if not one.name.startswith(gone)]
    missing = ptx_coverage.uncovered(kept, ARCH)
    assert "opcode elect" in missing
    assert "reference: sad.s32 %r1, %r2, %r3, %r4" in missing


FILES = sorted(program.SILICON.glob("*.xz"))


@pytest.mark.slow
def test_the_emulated_gpus_give_what_silicon_gave(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    if not FILES:
        pytest.skip(f"no GPU was recorded: {program.SILICON} has no file (docs/hardware/README.md says how)")
    for file in FILES:
        arch = load(file).head["arch"]
        device = vendor_of(arch).emulated(arch)
        assert program.main(["--compare", str(file), "--device", device]) == 0, capsys.readouterr().out
