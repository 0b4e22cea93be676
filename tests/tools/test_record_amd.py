"""The recorder's AMD forms: results are those of definitions, whatever shares a kernel."""

# ruff: noqa: E501 - names of forms and patterns read best on one line

from __future__ import annotations

import functools
import re
import struct
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from emulator.amd.isa.instruction import canonical
from emulator.amd.isa.meanings import LANEWISE, MEANINGS
from emulator.amd.isa.opcodes import target
from emulator.amd.isa.translate import read_kernel
from hcq.errors import UnsupportedError
from tools.record.amd import build, refusals, vendor
from tools.record.amd.encode import Code, base
from tools.record.compare import compared
from tools.record.recording import Journal, Recording
from tools.record.runner import Opened, Recorder

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tools.record.forms import Form

PARTIAL = 0xFFF7_FF7F
"""Lanes of a wave of 32 that execute in forms of vector instructions."""
NAMES = (
    "vop2.v_add_f32", "vop2.v_add_f32 dpp 0x140", "vopc.v_cmp_lt_i32", "vop3sd.v_add_co_u32", "sop2.s_add_u32",
    "sop1.s_and_saveexec_b32", "global.global_atomic_add_u32 returns", "ds.ds_store_2addr_b32", "exchange.ds_bpermute_b32 0x0 all",
    "special.LDS behind a barrier 32", "special.message passing with fences", "matrix.v_wmma_f32_16x16x16_f16 integers",
)  # fmt: skip


@functools.cache
def every(arch: str) -> dict[str, Form]:
    return {form.name: form for form in vendor.candidates(arch)}


def chosen(arch: str, names: Sequence[str]) -> list[Form]:
    found = every(arch)
    return [found[name] for name in names]


def recorded(path: Path, forms: Sequence[Form], parts: int) -> Recording:
    """Record forms on the emulated GPU, in so many shards."""
    head = dict.fromkeys(("device", "commit", "date", "tool"), "")
    head |= {"arch": "gfx1100", "driver": "amd-emu, emulated"}
    with Opened("amd-emu:gfx1100") as opened, Journal(path, head) as journal:
        recorder = Recorder(vendor.VENDOR, opened, journal, None, 600.0, lambda _: None)
        assert recorder.record([forms[n::parts] for n in range(parts)])
        assert not journal.recording.errors
        return journal.recording


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    return recorded(tmp_path_factory.mktemp("record") / "a.jsonl", chosen("gfx1100", NAMES), 1)


def columns(recording: Recording, name: str) -> tuple[Any, list[Any]]:
    """Return a form's inputs and results."""
    (form,) = chosen("gfx1100", [name])
    return form.inputs, form.columns(recording.results[name][1])


def executes(count: int) -> Any:
    return np.array([PARTIAL >> lane % 32 & 1 for lane in range(count)], bool)


def test_sums_and_comparisons_are_those_of_numpy(recording: Recording) -> None:
    given, (found,) = columns(recording, "vop2.v_add_f32")
    x, y = (given[:, n].astype("u4").view("f4") for n in (0, 1))
    on = executes(len(given))
    with np.errstate(all="ignore"):
        assert np.array_equal(found.astype("u4").view("f4")[on], (x + y)[on], equal_nan=True)
    assert np.array_equal(found[~on], given[~on, 3].astype("u4"))
    given, (bits,) = columns(recording, "vopc.v_cmp_lt_i32")
    less = given[:, 0].astype("u4").view("i4") < given[:, 1].astype("u4").view("i4")
    assert np.array_equal(bits, less & executes(len(given)))
    given, (_, carry) = columns(recording, "vop3sd.v_add_co_u32")
    assert np.array_equal(carry, (given[:, 0] + given[:, 1] >> np.uint64(32) != 0) & executes(len(given)))


def test_scalar_forms_have_a_row_a_turn(recording: Recording) -> None:
    given, (total, scc) = columns(recording, "sop2.s_add_u32")
    wide = given[:, 0] + given[:, 1]
    assert np.array_equal(total, (wide & np.uint64(0xFFFF_FFFF)).astype("u4"))
    assert np.array_equal(scc, (wide >> np.uint64(32)).astype("u1"))
    given, (old, scc, active) = columns(recording, "sop1.s_and_saveexec_b32")
    assert set(old) == {PARTIAL}
    assert np.array_equal(active, given[:, 0] & np.uint64(PARTIAL))
    assert np.array_equal(scc, active != 0)


def test_accesses_give_the_old_value_and_leave_the_sum(recording: Recording) -> None:
    given, found = columns(recording, "global.global_atomic_add_u32 returns")
    on, low = executes(len(given)), np.uint64(0xFFFF_FFFF)
    assert np.array_equal((found[0] & low)[on], (given[:, 2] & low)[on])
    assert np.array_equal((found[2] & low)[on], (given[:, 0] + given[:, 2] & low)[on])
    assert np.array_equal(found[2][~on], given[~on, 2])
    given, found = columns(recording, "ds.ds_store_2addr_b32")
    assert np.array_equal((found[3] >> np.uint64(32))[on], (given[:, 1] & low)[on])


def test_exchanges_take_the_lanes_that_an_index_names(recording: Recording) -> None:
    given, (found,) = columns(recording, "exchange.ds_bpermute_b32 0x0 all")
    rows = np.arange(len(given))
    source = rows // 32 * 32 + given[:, 1].astype("i8") // 4 % 32
    assert np.array_equal(found, given[source, 0].astype("u4"))
    _, (low, _) = columns(recording, "special.LDS behind a barrier 32")
    assert np.array_equal(low, (np.arange(128) + 77) % 128)


def test_the_forbidden_outcome_is_never_seen(recording: Recording) -> None:
    (form,) = chosen("gfx1100", ["special.message passing with fences"])
    assert form.results[0].allowed.kind == "zero"
    _, (forbidden, _) = columns(recording, form.name)
    assert not forbidden.any()


def test_matrices_of_small_integers_are_exact(recording: Recording) -> None:
    """Rows of D sum to the product of A with the sums of B's columns, wherever an element lies."""
    given, found = columns(recording, "matrix.v_wmma_f32_16x16x16_f16 integers")
    words = np.ascontiguousarray(given).view("u4").reshape(128, -1)
    d = np.stack(found, 1).view("u4").view("f4")
    for wave in range(4):
        lanes = words[32 * wave : 32 * wave + 16]
        a, b = (np.ascontiguousarray(lanes[:, at : at + 8]).view("f2").astype("f8") for at in (0, 8))
        c = np.ascontiguousarray(words[32 * wave : 32 * wave + 32, 16:24]).view("f4")
        assert d[32 * wave : 32 * wave + 32].sum() == (a @ b.T).sum() + c.sum()


def test_results_do_not_depend_on_what_shares_a_kernel(recording: Recording, tmp_path: Path) -> None:
    forms = chosen("gfx1100", NAMES)
    other = recorded(tmp_path / "b.jsonl", forms[::-1], 4)
    found = compared(recording, other, forms)
    assert found.agrees, found.lines()
    assert found.equal == len(NAMES)


def test_a_wrong_result_is_a_difference(recording: Recording) -> None:
    forms = chosen("gfx1100", ["sop2.s_add_u32"])
    key, data = recording.results[forms[0].name]
    wrong = Recording(recording.head, {forms[0].name: (key, bytes([data[0] ^ 1]) + data[1:])})
    assert not compared(recording, wrong, forms).agrees


NOTHING_COMPUTED = frozenset(
    (
        "s_clause", "s_code_end", "s_decperflevel", "s_delay_alu", "s_icache_inv", "s_incperflevel",
        "s_sendmsg", "s_sendmsghalt", "s_dcache_inv", "s_gl1_inv", "s_set_inst_prefetch_distance",
        "s_sethalt", "s_setkill", "s_setprio", "s_sleep", "s_ttracedata", "s_ttracedata_imm",
        "s_wait_event", "s_wait_idle", "s_wakeup", "v_nop", "s_wait_bvhcnt", "s_wait_expcnt",
        "s_wait_samplecnt", "s_singleuse_vdst",
    )
)  # fmt: skip
"""Operations that the emulated GPU implements and that have no result."""


def uncovered(arch: str) -> list[str]:
    """Return the names of operations that the emulated GPU implements and no form has."""
    arch = base(arch)
    of, seen = target(arch), set[str]()
    for form in vendor.forms(arch):
        words = [*build.words_of(form), *Code(arch).make("s_endpgm", "SOPP")]
        code = read_kernel(struct.pack(f"<{len(words)}I", *words), of, lanes=of.lanes, kernel="k")
        seen |= {canonical(one.stem, of.family) for one in code}
    named = {canonical(opcode.stem, of.family) for opcode in of.opcodes.values()}
    return sorted((named & (MEANINGS | LANEWISE).keys()) - seen - NOTHING_COMPUTED)


def known(arch: str) -> None:
    """What the emulated GPU knows has a form, beside caches, waits, messages, masks of the other wave, and modes of f16."""
    assert len(vendor.forms(arch)) > 4000
    without = re.compile(r"s_\w+(saveexec|wrexec)_b64|s_(getpc|prefetch|wait|dcache|buffer_prefetch)\w*|(buffer|global)_wb\w+|v_(mac|mad|madak|madmk)_f16")  # fmt: skip
    assert [name for name in uncovered(arch) if without.fullmatch(name) is None] == []
    assert vendor.refused(arch)


@pytest.mark.slow
def test_what_an_emulated_gpu_knows_has_a_form() -> None:
    known(vendor.ARCHES[0])


@pytest.mark.landing
def test_what_all_know_has_a_form_and_each_refused_form_is_of_a_class_with_its_reason() -> None:
    for arch in vendor.ARCHES:
        known(arch)
    every = {(arch, *one) for arch in vendor.ARCHES for one in vendor.refused(arch).items()}
    classes = {one: refusals.class_of(*one[1:]) for one in every}
    assert [one for one, found in classes.items() if not found] == []
    assert refusals.unused(classes.values()) == []


def test_a_refusal_without_a_reason_is_of_no_class() -> None:
    assert refusals.class_of("vop3.v_cubeid_f32 clamp", "this instruction is not supported")
    assert refusals.class_of("vop3.v_add_f32 clamp", "this instruction is not supported") == ""
    assert refusals.class_of("vop3.v_add_f32", "another reason") == ""
    assert len(refusals.unused([])) == len(refusals.OPERATIONS) + len(refusals.REASONS)


def test_a_prepared_kernel_is_the_one_that_is_built(tmp_path: Path) -> None:
    forms = chosen("gfx1100", NAMES[:3])
    assert vendor.prepare(forms, "gfx1100", tmp_path) == 1
    (here,), (there,) = (vendor.kernels(forms, "gfx1100", folder) for folder in (None, tmp_path))
    assert here.image.code == there.image.code
    assert len(here.image.code) > 4 * len(build.words_of(forms[0]))


def test_architectures_without_tables_are_refused() -> None:
    assert base("gfx1151") == "gfx1100"
    with pytest.raises(UnsupportedError, match="gfx90a has no forms"):
        base("gfx90a")
