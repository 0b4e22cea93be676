"""Run every form of a target against the pseudo-code, and count: forms, differences, what is not covered.

`python -m tests.emulator.amd_isa.pcode_tally gfx1100` prints the tally of a target.
"""

# ruff: noqa: E501 - rows of tables and texts read best on one line

from __future__ import annotations

import re
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from emulator.amd.isa.instruction import IsaError
from emulator.amd.isa.modes import IEEE, KEEP_ALL, KEEPS_NAN
from tests.emulator.amd_isa import (
    pcode,
    pcode_definitions,
    pcode_duals,
    pcode_forms,
    pcode_matrix,
    pcode_memory,
    pcode_movrel,
    pcode_products,
    pcode_scalars,
    pcode_smem,
    single,
)
from tests.emulator.amd_isa.lane_cases import Case, differences
from tests.emulator.amd_isa.pcode_values import PcodeError
from tools.arguments import command

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.emulator.amd_isa.pcode_forms import Choice, Form

_BATCH = 200


@dataclass
class Tally:
    """What was run, and what came of it."""

    forms: int = 0
    operations: set[str] = field(default_factory=set)
    differ: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    """Forms that the emulator does not run, with its reason."""
    uncovered: dict[str, str] = field(default_factory=dict)
    """Operations whose text the evaluator does not know, with the reason."""


def tally(
    name: str,
    chosen: Callable[[Form], Iterable[Choice]],
    wanted: Callable[[Form], bool] = lambda _: True,
    modes: int = KEEP_ALL,
    wave: int = 0,
) -> Tally:
    """Run the chosen forms of a target's vector operations in a float mode, in waves of so many lanes."""
    found = Tally()
    groups: dict[tuple[tuple[str, ...], bool], list[tuple[Form, Case]]] = defaultdict(list)
    for form in pcode_forms.forms(name):
        if not wanted(form):
            continue
        label = f"{form.kind} {form.stem}"
        try:
            plain = pcode_definitions.Definition(form, pcode_forms.Choice())
            plain.result(
                plain.run(pcode_forms.inputs(name, form.kinds)), pcode_forms.inputs(name, form.kinds)
            )
        except PcodeError as error:
            found.uncovered[label] = str(error)
            continue
        for choice in chosen(form):
            masked = choice == pcode_forms.Choice()
            groups[form.kinds, masked].append((form, pcode_definitions.case(form, choice, modes)))
    for (kinds, masked), members in groups.items():
        given = [pcode_forms.inputs(name, kinds, masked=masked, wave=wave)]
        for at in range(0, len(members), _BATCH):
            batch = members[at : at + _BATCH]
            try:
                found.differ += differences(
                    name, [case for _, case in batch], given, masked=masked, modes=modes
                )
            except IsaError:
                batch = _executed(name, batch, found, modes)
                if batch:
                    cases = [case for _, case in batch]
                    found.differ += differences(name, cases, given, masked=masked, modes=modes)
            found.forms += len(batch)
            found.operations |= {form.stem for form, _ in batch}
    return found


def _executed(name: str, batch: list[tuple[Form, Case]], found: Tally, modes: int) -> list[tuple[Form, Case]]:
    """Leave out, and count, the forms that the emulator does not run."""
    kept, never = [], set()
    for form, case in batch:
        why = "" if form in never else refused(name, case.words, modes)
        if why.startswith("this instruction is not"):
            never.add(form)
        if why or form in never:
            found.refused[case.text] = why or "this instruction is not supported"
        else:
            kept.append((form, case))
    return kept


def duals(name: str) -> Tally:
    """Run every pair of VOPD's halves."""
    cases = list(pcode_duals.duals(name))
    given = [pcode_forms.inputs(name, ("f32", "f32", "", "f32"), masked=False)]
    return Tally(len(cases), {case.text for case in cases}, differences(name, cases, given, masked=False))


def scalars(name: str) -> Tally:
    """Run every form of the scalar unit's operations."""
    found = Tally()
    for floats in (False, True):
        forms = []
        for form in pcode_scalars.scalars(name):
            if form.floats != floats:
                continue
            try:
                pcode.program(form.text)
            except PcodeError as error:
                found.uncovered[form.stem] = str(error)
                continue
            forms.append(form)
        while forms:
            try:
                found.differ += pcode_scalars.differences(name, forms, floats=floats)
                break
            except IsaError:
                one = {form.stem: form for form in reversed(forms)}
                why = {
                    stem: text for stem, form in one.items() if (text := pcode_scalars.refused(name, form))
                }
                if not why:
                    raise
                found.refused |= {form.label: why[form.stem] for form in forms if form.stem in why}
                forms = [form for form in forms if form.stem not in why]
        found.forms += len(forms)
        found.operations |= {form.stem for form in forms}
    return found


def memory(name: str, wanted: Callable[[pcode_memory.Access], bool] = lambda _: True) -> Tally:
    """Run the accesses of memory that are enumerated."""
    given = pcode_memory.cases(name)
    found, run = Tally(uncovered=given.uncovered), []
    for one in filter(wanted, given.run):
        why = refused(name, pcode_memory.instruction(one))
        if why:
            found.refused[one.label] = why
        else:
            run.append(one)
    for group in pcode_memory.groups(run):
        found.differ += pcode_memory.differences(name, group)
    found.forms, found.operations = len(run), {f"{one.kind} {one.stem}" for one in run}
    return found


def smem(name: str, wanted: Callable[[pcode_smem.Load], bool] = lambda _: True) -> Tally:
    """Run the scalar unit's loads of memory."""
    found, groups = Tally(), defaultdict(list)
    for one in filter(wanted, pcode_smem.loads(name)):
        why = refused(name, pcode_smem.words_of(name, one)) if one.opcode.name not in groups else ""
        if why:
            found.refused[one.opcode.name] = why
        else:
            groups[one.opcode.name].append(one)
    for group in groups.values():
        found.differ += pcode_smem.differences(name, group)
    found.forms, found.operations = sum(map(len, groups.values())), set(groups)
    return found


def matrices(name: str, wanted: Callable[[pcode_matrix.Form], bool] = lambda _: True) -> Tally:
    """Run the matrix operations; `refused` has those without a map."""
    found = Tally()
    for one in filter(wanted, pcode_matrix.forms(name, found.refused)):
        found.forms += 1
        found.operations.add(one.opcode.stem)
        if why := pcode_matrix.difference(name, one):
            found.differ.append(why)
    return found


def movrel(name: str) -> Tally:
    """Run the moves of vector registers that M0 numbers."""
    found = Tally()
    for kind, stem, text, m0 in pcode_movrel.moves(name):
        if why := refused(name, pcode_movrel.words_of(name, kind, stem, m0)):
            found.refused[stem] = why
            continue
        found.forms += 1
        found.operations.add(stem)
        if why := pcode_movrel.difference(name, kind, stem, text, m0):
            found.differ.append(why)
    return found


def wide_waves(name: str, chosen: Callable[[Form], Iterable[Choice]] = pcode_forms.choices) -> Tally:
    """Run in waves of 64, on gfx11 and gfx12, the operations that depend on lanes or make masks."""
    depends = re.compile("laneId|EXEC|VCC|WAVE|VGPR")
    return tally(
        name,
        chosen,
        lambda form: (
            "rel" not in form.stem and (bool(depends.search(form.text)) or form.kind in ("VOPC", "VOP3SD"))
        ),
        wave=64,
    )


def float_modes(name: str, modes: int, wanted: Callable[[Form], bool] = lambda _: True) -> Tally:
    """Run plain forms, and those with a clamp or an output modifier, in a float mode."""

    def chosen(form: Form) -> list[Choice]:
        choices = pcode_forms.choices(form)
        return [one for one in choices if one == pcode_forms.Choice() or one.clamp or one.omod]

    return tally(name, chosen, wanted, modes)


def modes_of(name: str) -> tuple[int, ...]:
    """Return modes in which each of FP_DENORM's values, IEEE and DX10_CLAMP occur, as the target has them."""
    return (0x00, 0x50, 0xA0) if name == "gfx1201" else (KEEPS_NAN, 0x50 | IEEE, 0xA0 | KEEPS_NAN | IEEE)


def refusal(name: str, case: Case) -> str:
    """Return why the emulator does not run a case, or an empty text."""
    return refused(name, case.words)


def refused(name: str, words: list[int], modes: int = KEEP_ALL) -> str:
    """Return why the emulator does not run an instruction, or an empty text."""
    try:
        single.program(name, words, modes=modes)
    except IsaError as error:
        return error.why
    return ""


def main(argv: list[str] | None = None) -> int:
    """Print the tally of each target named; return 0."""
    parser = command("tests.emulator.amd_isa.pcode_tally", __doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of: {', '.join(single.NAMES)} (default: all)")
    for name in parser.parse_args(argv).targets or single.NAMES:
        parts = {
            "vector": tally(name, pcode_forms.choices),
            "lanes and parts": tally(name, pcode_products.choices),
            "scalar": scalars(name),
            "memory": memory(name),
            "scalar memory": smem(name),
            "matrix": matrices(name),
            **{f"mode {mode:#x}": float_modes(name, mode) for mode in modes_of(name)},
        }
        if name != "gfx942":
            parts |= {"dual": duals(name), "movrel": movrel(name), "waves of 64": wide_waves(name)}
        for what, found in parts.items():
            sys.stdout.write(
                f"{name} {what}: {found.forms} forms of {len(found.operations)} operations, {len(found.differ)} differ, "
                f"{len(found.refused)} forms are not run, {len(found.uncovered)} texts are not known\n"
            )
            for text in found.differ:
                sys.stdout.write(f"  differs: {text}\n")
            for label, why in [*found.refused.items(), *found.uncovered.items()]:
                sys.stdout.write(f"  {label}: {why}\n")
        for label in pcode_forms.without(name):
            sys.stdout.write(f"  {label}: no pseudo-code\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
