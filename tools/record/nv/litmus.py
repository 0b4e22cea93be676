"""Litmus tests of the memory model: counts of the outcomes of two or four threads. Source: PTX ISA chapter 8.

Each test is run by groups of two or four workgroups, in many rounds on words that no other round uses. The
count of an outcome that the model forbids must be 0 on silicon and on the emulated GPU. All other counts
depend on time. They are recorded and not compared; they show which reorderings the hardware makes.

Not here: the order of one thread's accesses (`moves`). Next: `vendor`, the list of all forms.
"""

# ruff: noqa: E501 - tables of forms read best one form a line

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tools.record.forms import NOTHING, Allowed, Form, Launch, Result

if TYPE_CHECKING:
    from collections.abc import Iterator

_ROUNDS: Final = 64
_PAIRS: Final = 4
_STRIDE: Final = 512
"""Bytes between the words of two rounds; two words of one round lie 256 bytes apart."""
_FAR: Final = 256
_TIMES: Final = Allowed(
    "free", rule="PTX ISA chapter 8: the model permits this outcome, how often it is seen is a matter of time"
)


@dataclass(frozen=True, slots=True)
class _Test:
    """A test of two words, x and y, which begin as 0."""

    name: str
    roles: tuple[str, ...]
    """The PTX of each workgroup: the words are at [x] and [y], results in r0 to r3, {s} is the scope, {f} the
    fence."""
    forbidden: tuple[str, ...]
    """Keys of `_FENCES` with which the model forbids the outcome `weak`."""
    weak: int
    """The outcome r0 + 2 * r1 (+ 4 * r2 + 8 * r3) of a reordering."""
    permitted: tuple[str, ...] = ()
    """Keys of `_FENCES` with which the model permits it."""


_SCOPES: Final = ("gpu", "sys")
_STORE, _LOAD = "st.relaxed.{s}.global.u32", "ld.relaxed.{s}.global.u32"
_TESTS: Final = (
    _Test(
        "message passing",
        (_STORE + " [x], 1; {f} " + _STORE + " [y], 1;", _LOAD + " r0, [y]; {f} " + _LOAD + " r1, [x];"),
        ("fence.acq_rel", "fence.sc", "membar"), 1, ("relaxed",),
    ),
    _Test(
        "message passing by release and acquire",
        (_STORE + " [x], 1; st.release.{s}.global.u32 [y], 1;", "ld.acquire.{s}.global.u32 r0, [y]; " + _LOAD + " r1, [x];"),
        ("release",), 1,
    ),
    _Test(
        "message passing by atom",
        (_STORE + " [x], 1; atom.release.{s}.global.exch.b32 r2, [y], 1;", "atom.acquire.{s}.global.or.b32 r0, [y], 0; " + _LOAD + " r1, [x];"),
        ("release",), 1,
    ),
    _Test(
        "message passing of weak stores",
        ("st.global.u32 [x], 1; {f} " + _STORE + " [y], 1;", _LOAD + " r0, [y]; {f} .reg .pred g; setp.ne.u32 g, r0, 0; @g ld.global.u32 r1, [x]; @!g mov.u32 r1, 1;"),
        ("fence.acq_rel", "fence.sc"), 1,
    ),
    _Test(
        "store buffering",
        (_STORE + " [x], 1; {f} " + _LOAD + " r0, [y];", _STORE + " [y], 1; {f} " + _LOAD + " r1, [x];"),
        ("fence.sc", "membar"), 0, ("relaxed", "fence.acq_rel"),
    ),
    _Test(
        "load buffering",
        (_LOAD + " r0, [x]; {f} " + _STORE + " [y], 1;", _LOAD + " r1, [y]; {f} " + _STORE + " [x], 1;"),
        ("fence.acq_rel", "fence.sc"), 3, ("relaxed",),
    ),
    _Test(
        "coherence of reads",
        (_STORE + " [x], 1;", _LOAD + " r0, [x]; " + _LOAD + " r1, [x];"),
        ("relaxed",), 1,
    ),
    _Test(
        "two writes, reversed reads",
        (_STORE + " [x], 1; {f} " + _STORE + " [y], 2;", _STORE + " [y], 1; {f} " + _LOAD + " r0, [x];"),
        (), 0, ("relaxed", "fence.acq_rel", "fence.sc"),
    ),
    _Test(
        "independent reads of independent writes",
        (_STORE + " [x], 1;", _STORE + " [y], 1;", _LOAD + " r0, [x]; {f} " + _LOAD + " r1, [y];", _LOAD + " r2, [y]; {f} " + _LOAD + " r3, [x];"),
        ("fence.sc",), 1 + 4, ("relaxed", "fence.acq_rel"),
    ),
)  # fmt: skip
_FENCES: Final = {
    "relaxed": "",
    "release": "",
    "fence.acq_rel": "fence.acq_rel.{s};",
    "fence.sc": "fence.sc.{s};",
    "membar": "membar.gl;",
}
"""Name -> the instruction that replaces {f}; "" where the accesses themselves state the order, or none does."""


def _form(test: _Test, strength: str, scope: str) -> Form:
    """Return the form of a test. A workgroup's number is its role; the last of a round counts the outcome."""
    roles, fence = len(test.roles), _FENCES[strength].format(s=scope)
    outcomes = 16 if roles > 2 else 4
    results_at = _ROUNDS * _PAIRS * _STRIDE
    text = " .reg .b32 w, p, role, i, r0, r1, r2, r3, v, n; .reg .b64 x, y, o, base, c; .reg .pred q, go, more;\n"
    text += f" mov.u32 w, %ctaid.x; rem.u32 role, w, {roles}; div.u32 p, w, {roles}; add.u64 base, %out, $scratch; mov.u32 i, 0;\n"
    text += f"AGAIN: mad.lo.u32 n, p, {_ROUNDS}, i; mul.wide.u32 x, n, {_STRIDE}; add.u64 x, x, base; add.u64 y, x, {_FAR}; mov.u32 r0, 0; mov.u32 r1, 0; mov.u32 r2, 0; mov.u32 r3, 0;\n"
    # All roles of a group meet before each round, by a counter beside the words.
    text += f" atom.relaxed.gpu.global.add.u32 v, [x+{_STRIDE // 4}], 1;\nMEET: ld.relaxed.gpu.global.u32 v, [x+{_STRIDE // 4}]; setp.lt.u32 go, v, {roles}; @go bra MEET;\n"
    for number, role in enumerate(test.roles):
        text += f" setp.ne.u32 q, role, {number}; @q bra NOT{number};\n {role.format(s=scope, f=fence)}\nNOT{number}:\n"
    text += " shl.b32 r1, r1, 1; shl.b32 r2, r2, 2; shl.b32 r3, r3, 3; or.b32 v, r0, r1; or.b32 v, v, r2; or.b32 v, v, r3;\n"
    text += f" mul.wide.u32 o, n, 8; add.u64 o, o, base; add.u64 o, o, {results_at}; red.relaxed.gpu.global.or.b32 [o], v; fence.acq_rel.gpu; atom.relaxed.gpu.global.add.u32 v, [o+4], 1;\n"
    text += f" setp.ne.u32 q, v, {roles - 1}; @q bra NEXT; fence.acq_rel.gpu; ld.relaxed.gpu.global.u32 v, [o]; and.b32 v, v, {outcomes - 1}; \n"
    # Outcome v is counted in column v: columns have 8 bytes each.
    text += " mul.wide.u32 c, v, 8; add.u64 c, c, %out; red.relaxed.gpu.global.add.u32 [c+$c0], 1;\n"
    text += f"NEXT: add.u32 i, i, 1; setp.lt.u32 more, i, {_ROUNDS}; @more bra AGAIN;"
    never = (
        Allowed("zero", rule=f"PTX ISA chapter 8: {test.name} with {strength} forbids it")
        if strength in test.forbidden
        else _TIMES
    )
    columns = []
    for outcome in range(outcomes):
        bits = f"{outcome:0{4 if outcomes > 4 else 2}b}"[::-1]
        columns.append(Result(f"r={bits}", "u32", never if outcome == test.weak else _TIMES))
    scratch = results_at + 8 * _ROUNDS * _PAIRS
    return Form(
        f"litmus: {test.name}, {strength}.{scope}", text, (), NOTHING, tuple(columns), doubt=9, rows=1,
        launch=Launch((roles * _PAIRS, 1, 1), (1, 1, 1), scratch_bytes=scratch),
    )  # fmt: skip


def forms() -> Iterator[Form]:
    """Yield all forms of this file."""
    for test in _TESTS:
        for strength in (*test.forbidden, *test.permitted):
            for scope in _SCOPES:
                if not (strength == "membar" and scope == "sys"):
                    yield _form(test, strength, scope)
