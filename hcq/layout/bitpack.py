"""The generator of `BitStruct.pack`: straight-line code for each word, without large integers or an object.

`BitStruct.__init__` is the readable implementation, and the oracle in tests; this is the fast one.

Next: `bitstruct`, the caller.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hcq.layout.base import MISSING, padded
from hcq.layout.bitfield import pieces, refuse

if TYPE_CHECKING:
    from collections.abc import Callable

    from hcq.layout.bitfield import Field
    from hcq.layout.bitstruct import BitStruct


def compile_pack(layout: type[BitStruct]) -> Callable[..., tuple[int, ...]]:
    """Generate `pack(**fields) -> words` for a layout."""
    source, scope = pack_source(layout)
    exec(source, scope)  # noqa: S102 - the text contains only names and integers of the layout
    pack: Callable[..., tuple[int, ...]] = scope["pack"]
    pack.__qualname__ = f"{layout.__name__}.pack"
    pack.__module__ = layout.__module__
    return pack


def pack_source(layout: type[BitStruct]) -> tuple[str, dict[str, Any]]:
    """Return the source of `pack` and the names that it uses."""
    scope: dict[str, Any] = {"_layout": layout.__name__, "_refuse": refuse, "_padded": padded}
    parameters: list[str] = []
    checks: list[str] = []
    words: list[list[str]] = [[] for _ in range(layout.WORDS)]
    base = [0] * layout.WORDS
    for field in layout.FIXED.values():
        for site in pieces(field, 0, layout.WORD_BITS):
            base[site.word] |= ((field.default >> site.shift) & ((1 << site.width) - 1)) << site.lo
    for name, field in layout.FIELDS.items():
        scope[f"_f_{name}"], scope[f"_d_{name}"] = field, field.default
        parameters.append(name if field.default is MISSING else f"{name}=_d_{name}")
        variables = [name] if field.count == 1 else [f"{name}_{i}_" for i in range(field.count)]
        if field.count > 1:
            checks.append(
                f" {', '.join(variables)}, = _padded({layout.__name__!r}, {name!r}, {name}, {field.count})"
            )
        for i, variable in enumerate(variables):
            checks += _checks(field, variable)
            for site in pieces(field, i, layout.WORD_BITS):
                words[site.word].append(_term(field, variable, site.shift, site.width, site.lo))
    body = ", ".join(
        " | ".join([*terms, str(constant)] if constant or len(terms) < 2 else terms)
        for terms, constant in zip(words, base, strict=True)
    )
    head = f"def pack(*, {', '.join(parameters)}):" if parameters else "def pack():"
    return "\n".join([head, *checks, f" return ({body},)"]), scope


def _checks(field: Field, variable: str) -> list[str]:
    lowest, highest = field.bounds
    bad = f"not {lowest} <= {variable} <= {highest}"
    if field.shift:
        bad += f" or {variable} & {(1 << field.shift) - 1}"
    lines = [f" if {bad}: _refuse(_layout, _f_{field.name}, {variable})"]
    if field.signed:
        lines.append(f" {variable} &= {((1 << field.width) - 1) << field.shift}")
    return lines


def _term(field: Field, variable: str, shift: int, width: int, lo: int) -> str:
    text = f"{variable} >> {shift}" if shift else variable
    if shift + width < field.shift + field.width:
        text = f"({text}) & {(1 << width) - 1}"
    return f"({text}) << {lo}" if lo else f"({text})"
