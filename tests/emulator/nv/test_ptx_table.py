"""The emulated GPU, a table typed in from the PTX manual, and answers of NVIDIA's assembler agree."""

# ruff: noqa: E501 - rows of tables and texts read best on one line; a tally is printed

from __future__ import annotations

import dataclasses
import re

import pytest

from emulator.nv.ptx.module import PtxError, load_ptx
from emulator.shared.memory import AddressSpace
from emulator.simt.engine import Settings
from hcq.config import config
from tests.facts import ptx_illegal, ptx_table
from tests.facts.ptx_answers import ARCHES, MOST, accepted, chosen, different, digest, kept
from tests.facts.ptx_form import Form, batch
from tests.facts.ptx_tally import Tally, tally

FAMILIES = tuple(ptx_table.FAMILIES)


def _check(found: Tally, forms: int) -> None:
    assert found.forms == forms, found.refused
    assert not found.differ


@pytest.mark.parametrize("family", FAMILIES)
def test_emulated_gpu_computes_a_sample_of_the_table(family: str) -> None:
    forms = ptx_table.of("sm_90", family)[:: 34 if family == "compare" else 10]
    _check(tally("sm_90", forms), len(forms))


@pytest.mark.landing
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("arch", ARCHES)
def test_emulated_gpu_computes_the_table(arch: str, family: str) -> None:
    forms = ptx_table.of(arch, family)
    forms = forms if arch == "sm_90" else forms[::5]
    _check(tally(arch, forms), len(forms))


def test_wrong_meaning_is_told() -> None:
    form = next(form for form in ptx_table.table("integers") if form.name == "sub.s16")
    wrong = dataclasses.replace(form, meaning=lambda a, b: (b - a) & 0xFFFF)
    assert list(tally("sm_90", [form, wrong]).differ) == ["sub.s16"]


def test_zero_is_a_normal_number() -> None:
    form = next(form for form in ptx_table.table("floats") if form.name == "testp.normal.f32")
    assert {0, 0x8000_0000} <= {values[0] for values in form.inputs}
    assert not tally("sm_90", [form]).differ


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    "arch", ["sm_90", *(pytest.param(arch, marks=pytest.mark.landing) for arch in ARCHES if arch != "sm_90")]
)
def test_table_has_the_answers_of_the_assembler(arch: str, family: str) -> None:
    answers, forms = kept(arch)[1], ptx_table.of(arch, family)
    for form in forms if family != "compare" else forms[::7]:
        answer, inputs = answers[form.name], chosen(form, MOST.get(family, 24))
        assert answer.check == digest(inputs), (
            f"{form.name}: the inputs changed; ask again: tests.facts.ptx_answers"
        )
        if answer.rows:
            assert not list(different(form, inputs, answer.rows))


@pytest.mark.parametrize(("arch", "least"), [("sm_80", 29_500), ("sm_90", 29_500), ("sm_120", 24_500)])
def test_assembler_folds_thousands_of_answers(arch: str, least: int) -> None:
    assert sum(answer.folded for answer in kept(arch)[1].values()) >= least


@pytest.mark.parametrize("arch", ARCHES)
def test_assembler_refuses_what_the_table_says_an_architecture_lacks(arch: str) -> None:
    refused, number = set(kept(arch)[2]), int(arch[3:])
    lacking = {form.name for family in FAMILIES for form in ptx_table.table(family) if form.arch > number}
    assert refused - lacking == {form.name for form in ptx_illegal.forms()}
    assert not lacking - refused


def _refuses(form: Form, arch: str) -> bool:
    module = load_ptx(batch([form], arch), arch=arch, settings=Settings(cache=config().cache))
    try:
        module.kernel("k", module.place(AddressSpace()))
    except PtxError:
        return True
    return False


_NOT_EMULATED = re.compile(r"\.oob|fma\.r[zmp]\S*bf16|setp\S*x2")
"""Forms that the assembler takes, some beyond the manual, and the emulated GPU refuses in words."""


@pytest.mark.parametrize("part", ["sample", pytest.param("all", marks=pytest.mark.landing)])
@pytest.mark.parametrize("arch", ARCHES)
def test_emulated_gpu_refuses_what_the_assembler_refuses(arch: str, part: str) -> None:
    step, number = {"sample": 61, "all": 1}[part], int(arch[3:])
    products = list(ptx_illegal.products())[::step]
    taken = {form.name for form in products if not _refuses(form, arch)}
    wanted = accepted(arch) & {form.name for form in products}
    assert sorted(taken - wanted) == []
    assert sorted(name for name in wanted - taken if not _NOT_EMULATED.search(name)) == []
    newer = [form for family in FAMILIES for form in ptx_table.table(family) if form.arch > number][
        :: 4 * step
    ]
    assert [
        form.name for form in [*list(ptx_illegal.forms())[::step], *newer] if not _refuses(form, arch)
    ] == []


_MARKS = {
    "rz": r"\.RZ|TRUNC|RZ", "rm": r"\.RM|FLOOR", "rp": r"\.RP|CEIL", "rzi": "TRUNC", "rmi": "FLOOR", "rpi": "CEIL",
    "ftz": "FTZ|FMUL|FADD", "relu": "RELU", "satfinite": "SATFINITE", "xorsign": "XORSIGN", "NaN": "NAN",
}  # fmt: skip


@pytest.mark.parametrize("arch", ARCHES)
def test_modifiers_reach_the_machine_code(arch: str) -> None:
    """An instruction of its own carries the rounding, `.relu`, `.NaN` of the form that became it."""
    seen = 0
    for name, answer in kept(arch)[1].items():
        if len(answer.code) != 1 or not re.match(
            r"F2I|I2F|F2F|FADD|FMUL|FFMA|DADD|DMUL|DFMA|H|FMNMX", answer.code[0]
        ):
            continue
        for mark in set(name.split(".")) & {"rm", "rp", "rmi", "rpi", "relu", "NaN", "xorsign"}:
            seen += 1
            assert re.search(_MARKS[mark], answer.code[0]), (name, answer.code)
    assert seen > 40
