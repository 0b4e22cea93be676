"""The whole table of PTX forms with their meanings, and where their text says so."""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING

from tests.facts import ptx_compare, ptx_convert, ptx_floats, ptx_integers, ptx_logic

if TYPE_CHECKING:
    from tests.facts.ptx_form import Form

FAMILIES = {
    "integers": ptx_integers.forms, "logic": ptx_logic.forms, "compare": ptx_compare.forms,
    "convert": ptx_convert.forms, "floats": ptx_floats.forms,
}  # fmt: skip


@cache
def table(family: str) -> tuple[Form, ...]:
    """Return the forms of a family, every name once."""
    found = {form.name: form for form in FAMILIES[family]()}
    return tuple(found.values())


def of(arch: str, family: str) -> tuple[Form, ...]:
    """Return the forms that an architecture such as `sm_90` has."""
    number = int("".join(c for c in arch if c.isdigit()))
    return tuple(form for form in table(family) if form.arch <= number)


def texts() -> list[str]:
    """Return a line of JSON for each form of the table: what `tools.record.nv.manual` runs on a GPU."""
    forms = {form.name.strip(): form for family in FAMILIES for form in table(family)}
    rows = [[name, form.code, form.kinds, form.outputs, form.arch] for name, form in forms.items()]
    return [json.dumps(row) + "\n" for row in rows]
