"""Relocations of an Executable: the u64 elements with bits that a replay writes, and the code that does.

Every patch becomes bits of u64 elements of a slot's memory. `compile_bind` generates the straight-line
function that replays use: one identity test for each parameter, and stores only for those that changed. Where
all changed, the evenly spaced addresses of equal launches are stored at once.

Not here: relocations of ELF images (`drivers.elf`), the check of values (`hcq.params`).
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hcq.memory import Owner
from hcq.params import Expr, Param

MASK64 = (1 << 64) - 1
SHORTEST = 8
"""The fewest addresses that are stored at once."""


@dataclass(frozen=True, slots=True)
class Term:
    """Bits of one element: `((number + add) >> shift & mask) << lo`."""

    param: int
    """Index in the parameters of the executable."""
    expr: Expr
    shift: int
    mask: int
    lo: int


@dataclass(frozen=True, slots=True)
class Element:
    """One u64 in the memory of a slot, with bits that depend on parameters."""

    view: int
    """Index of the memory view."""
    index: int
    base: int
    """The constant bits."""
    terms: tuple[Term, ...]


@dataclass(frozen=True, slots=True)
class Placed:
    """An encoded patch and its location: bits [lo, lo + width) from byte `offset` of memory `view`."""

    view: int
    offset: int
    lo: int
    width: int
    expr: Expr


def elements(
    patches: Sequence[Placed], params: Sequence[Param], views: Sequence[memoryview]
) -> tuple[Element, ...]:
    """Group patches by the u64 elements that they write. Constant bits are read from `views`."""
    number = {param: i for i, param in enumerate(params)}
    terms: dict[tuple[int, int], list[Term]] = {}
    for patch in patches:
        bit = 8 * patch.offset + patch.lo
        done = 0
        while done < patch.width:
            index, lo = divmod(bit + done, 64)
            take = min(patch.width - done, 64 - lo)
            term = Term(number[patch.expr.param], patch.expr, done, (1 << take) - 1, lo)
            terms.setdefault((patch.view, index), []).append(term)
            done += take
    out = []
    for (view, index), parts in sorted(terms.items()):
        hole = 0
        for term in parts:
            hole |= term.mask << term.lo
        out.append(Element(view, index, views[view][index] & MASK64 & ~hole, tuple(parts)))
    return tuple(out)


def rows(plan: Sequence[Element], pointers: Sequence[bool]) -> list[list[Element]]:
    """Return elements that are whole addresses, of one view and evenly spaced, in rows of `SHORTEST` or more.

    Only every eighth element is in one row: argument blocks begin at multiples of 64 bytes.
    """
    columns: dict[tuple[int, int], list[Element]] = {}
    for element in plan:
        if _word(element, pointers) == f"b{element.terms[0].param}.address":
            columns.setdefault((element.view, element.index % 8), []).append(element)
    found: list[list[Element]] = []
    for column in columns.values():
        row: list[Element] = []
        for element in column:
            if len(row) > 1 and element.index - row[-1].index != row[1].index - row[0].index:
                row = []
            if not row:
                found.append(row)
            row.append(element)
    return [row for row in found if len(row) >= SHORTEST]


def compile_bind(
    plan: Sequence[Element],
    least: Sequence[int],
    pointers: Sequence[bool],
    owners: Sequence[Sequence[Owner]],
    check: Callable[[int, Any], None],
) -> Callable[[Sequence[Any], list[Any], Sequence[memoryview]], None]:
    """Generate `bind(given, current, views)`: write the values that differ from `current`, and update it.

    `pointers` says for each parameter whether its value is a buffer, `least` how many bytes that must have,
    and `owners` which devices must see it. `check(i, value)` is called for a value that the generated code
    cannot prove valid; it raises or returns. After an exception the memory is partly written, and the caller
    must discard `current`.
    """
    names = [f"b{i}" for i in range(len(least))]
    # Names are default arguments, and `current` is unpacked: a global or an index costs as much as a test.
    scope: dict[str, Any] = {"check": check, "array": array}
    singles: dict[Owner, str] = {}
    for users in owners:
        if len(users) == 1:
            name = singles.setdefault(users[0], f"device{len(singles)}")
            scope[name] = users[0]
    scope |= {
        f"e{element.view}_{element.index}_{k}": term.expr.evaluate
        for element in plan
        for k, term in enumerate(element.terms)
        if term.expr.float_bits
    }
    lines = [f"def bind(given, current, views, {', '.join([f'{name}={name}' for name in scope])}):"]
    if names:
        lines += [f" m{i} = views[{i}]" for i in sorted({element.view for element in plan})]
        lines += [f" {', '.join(names)}, = given"]
    uses: list[list[Element]] = [[] for _ in least]
    for element in plan:
        for param in dict.fromkeys([term.param for term in element.terms]):
            uses[param].append(element)
    bodies: list[list[str]] = []
    """For each parameter the lines that check and store it."""
    for i, size in enumerate(least):
        check_it = f"check({i}, b{i})"
        if pointers[i] and len(owners[i]) == 1:
            # Another class has no `device` or no `address`, and the caller checks each value after an error.
            test = f"b{i}.device is not {singles[owners[i][0]]}" + (f" or b{i}.size < {size}" if size else "")
            check_it = f"if {test}: {check_it}"
        stores = [f"  m{element.view}[{element.index}] = {_word(element, pointers)}" for element in uses[i]]
        bodies.append([f"  {check_it}", *stores])
    if len(plan) >= SHORTEST and (together := rows(plan, pointers)):
        first, last = together[0][0].terms[0].param, together[-1][-1].terms[0].param
        in_rows = {id(element) for row in together for element in row}
        lines.append(
            f" if b{first} is not current[{first}] and b{last} is not current[{last}]:  # likely all"
        )
        lines += [body[0] for body in bodies]
        lines += [
            f"  m{row[0].view}[{row[0].index}:{row[-1].index + 1}:{row[1].index - row[0].index}] = "
            f"array('L', [{', '.join([_word(element, pointers) for element in row])}])"
            for row in together
        ]
        for used, body in zip(uses, bodies, strict=True):
            lines += [store for one, store in zip(used, body[1:], strict=True) if id(one) not in in_rows]
        lines += ["  current[:] = given", "  return"]
    if names:
        lines += [f" {', '.join([f'c{i}' for i in range(len(names))])}, = current"]
    for i, body in enumerate(bodies):
        lines += [f" if b{i} is not c{i}:", *body]
    lines.append(" current[:] = given")
    # After an interrupt inside `exec` of a text, Python 3.11 exits with status -2, even if it was handled.
    code = compile("\n".join(lines), "<relocations>", "exec")
    exec(code, scope)  # noqa: S102 - the text contains only integers of this module
    bind: Callable[[Sequence[Any], list[Any], Sequence[memoryview]], None] = scope.pop("bind")
    return bind


def _word(element: Element, pointers: Sequence[bool]) -> str:
    """Return the source text of the number to store in an element."""
    texts = []
    for k, term in enumerate(element.terms):
        value = f"b{term.param}.address" if pointers[term.param] else f"b{term.param}"
        expr = term.expr
        if expr.float_bits:
            number, shift = f"e{element.view}_{element.index}_{k}({value})", term.shift
        else:
            number = f"({value} + {expr.add})" if expr.add else value
            shift = expr.shift + term.shift
        # A whole address that is alone in its element needs no mask.
        if term.mask == MASK64 and not shift and not expr.add and pointers[term.param]:
            texts.append(number)
            continue
        number = f"{number} >> {shift}" if shift else number
        texts.append(f"({number} & {term.mask}) << {term.lo}" if term.lo else f"({number} & {term.mask})")
    return " | ".join([str(element.base), *texts] if element.base or len(texts) > 1 else texts)
