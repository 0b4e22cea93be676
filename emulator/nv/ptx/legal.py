"""The types and modifiers that each arithmetic instruction takes, and the first architecture of each form.

Sources: PTX ISA, the syntax of each instruction; forms that ptxas 13.5 refuses (`tests/facts/ptx_answers_kept`).

Not here: comparisons of values and the arithmetic (`integers`, `floats`, `bits`, `compare`, `convert`). Next: `translate`,
which calls `check`.
"""

# ruff: noqa: E501 - rows of the grammar read best on one line

from __future__ import annotations

from typing import TYPE_CHECKING

from emulator.nv.ptx.statements import TYPES, Pair, PtxError, PtxInstruction

if TYPE_CHECKING:
    from collections.abc import Sequence
    from collections.abc import Set as AbstractSet

_RND = "rn rz rm rp"
_INTEGERS = "u16 s16 u32 s32 u64 s64"
_BITS = "b16 b32 b64"
_SUMS = f"u16 s16: | u32 u64 s64: cc | s32: sat cc | f32: {_RND} ftz sat | f32x2: {_RND} ftz | f64: {_RND} | f16 f16x2: rn ftz sat | bf16 bf16x2: rn @90"
_PRODUCT = "f32: {rnd} ftz sat | f32x2: {rnd} ftz | f64: {rnd} | f16 f16x2: {half} | bf16 bf16x2: {halves}"
_SIGNS = "s16 s32 s64: | f32 f16 f16x2: ftz | f64 bf16 bf16x2:"
_EXTREMES = (
    "u16 u32 u64 s16 s64 f64: | s32: relu>90 | u16x2: @90 | s16x2: relu @90 | f32: ftz NaN xorsign abs | "
    "f16 f16x2: ftz NaN xorsign abs | bf16 bf16x2: NaN xorsign abs"
)
_APPROXIMATE = "f32: approx! ftz"
_GRAMMAR = {
    "add": f"{_SUMS} | u16x2 s16x2: @90", "sub": _SUMS,
    **dict.fromkeys(("addc", "subc"), "u16 s16: | u32 u64 s64: cc | s32: sat cc"),
    "mul": "u16 s16 u32 s32: lo! hi! wide! | u64 s64: lo! hi! | " + _PRODUCT.format(rnd=_RND, half="rn ftz sat", halves="rn @90"),
    "mad": "u16 s16: lo! hi! wide! | u32: lo! hi! wide! cc | s32: lo! hi! wide! cc sat | u64 s64: lo! hi! cc | "
    "f32: rn! rz! rm! rp! ftz sat | f64: rn! rz! rm! rp!",
    "madc": "u16 s16: lo! hi! | u32 u64 s64: lo! hi! cc | s32: lo! hi! cc sat",
    "fma": _PRODUCT.format(rnd="rn! rz! rm! rp!", half="rn! ftz sat relu oob", halves="rn! relu oob"),
    "mul24": "u32 s32: lo! hi!", "mad24": "u32: lo! hi! | s32: lo! hi! sat",
    "sad": f"{_INTEGERS}:", "rem": f"{_INTEGERS}:",
    "div": f"{_INTEGERS}: | f32: rn! rz! rm! rp! approx! full! ftz | f64: rn! rz! rm! rp!",
    "abs": _SIGNS, "neg": _SIGNS, "min": _EXTREMES, "max": _EXTREMES,
    "rcp": "f32: rn! rz! rm! rp! approx! ftz | f64: rn! rz! rm! rp! approx! ftz",
    "sqrt": "f32: rn! rz! rm! rp! approx! ftz | f64: rn! rz! rm! rp!",
    "rsqrt": "f32 f64: approx! ftz", **dict.fromkeys(("sin", "cos", "lg2"), _APPROXIMATE),
    "ex2": f"{_APPROXIMATE} | f16 f16x2: approx! | bf16 bf16x2: approx& ftz& @90",
    "tanh": "f32 f16 f16x2: approx! | bf16 bf16x2: approx! @90",
    **dict.fromkeys(("popc", "clz", "brev"), "b32 b64:"), "cnot": f"{_BITS}:",
    **dict.fromkeys(("and", "or", "xor", "not"), f"{_BITS} pred:"),
    "bfind": "u32 s32 u64 s64: shiftamt", "shl": f"{_BITS}:", "shr": f"{_BITS} {_INTEGERS}:", "bfe": "u32 s32 u64 s64:",
    "bfi": "b32 b64:", "szext": "u32 s32: wrap! clamp!", "bmsk": "b32: wrap! clamp!",
    "shf": "b32: l! r! wrap clamp", "prmt": "b32: f4e b4e rc8 ecl ecr rc16", "fns": "b32:",
    "testp": "f32 f64: finite infinite number notanumber normal subnormal", "copysign": "f32 f64:",
    "selp": f"{_BITS} {_INTEGERS} f32 f64:",
}  # fmt: skip
"""Opcode -> rows "TYPES: WORDS", divided by "|". A word is allowed; of the words with `!` one is needed; a word with `&` is
needed; a word with `>90` is allowed from sm_90 on. `@90` at the end: the whole row is for sm_90 and later."""
_TOGETHER = ({"sat", "relu"}, {"wide", "cc"})
"""Pairs of words that exclude each other."""
_COMPARISONS = "eq ne lt le gt ge"
_COMPARED = {
    "b": "eq ne", "s": _COMPARISONS, "u": f"{_COMPARISONS} lo ls hi hs",
    "f": f"{_COMPARISONS} equ neu ltu leu gtu geu num nan",
}  # fmt: skip
_COMPARABLE = f"{_BITS} {_INTEGERS} f16 f16x2 bf16 bf16x2 f32 f64".split()


def _parsed(text: str) -> dict[str, tuple[dict[str, str], int]]:
    """Return, by type, the words of a row with their marks, and the first architecture, 0 for all."""
    found: dict[str, tuple[dict[str, str], int]] = {}
    for row in text.split("|"):
        types, _, words = row.partition(":")
        words, _, arch = words.partition("@")
        kept = {word.partition(">")[0].rstrip("!&"): word for word in words.split()}
        found |= dict.fromkeys(types.split(), (kept, int(arch or 0)))
    return found


_RULES = {opcode: _parsed(text) for opcode, text in _GRAMMAR.items()}


def check(instruction: PtxInstruction, arch: int) -> None:
    """Raise `PtxError` for a type or modifier that an arithmetic instruction does not take on sm_`arch`.

    Instructions without a row in `_GRAMMAR` are not checked.
    """
    opcode, types = instruction.opcode, [word for word in instruction.modifiers if word in TYPES]
    words = {word for word in instruction.modifiers if word not in TYPES}
    wrong, first = "", 0
    if opcode in ("set", "setp") and types:
        wrong, first = _compared(types, words, two=isinstance(instruction.operands[0], Pair))
    elif opcode in ("dp2a", "dp4a") and set(types) - {"u32", "s32"}:
        wrong = "takes .u32 and .s32"
    elif opcode == "cvt" and len(types) == 2 and "pack" not in words:
        wrong, first = _converted(types[0], types[1], words)
    elif opcode in _RULES and len(types) == 1:
        wrong, first = _computed(opcode, types[0], words)
    if not wrong and arch < first:
        wrong = f"needs sm_{first} or later, and this is sm_{arch}"
    if wrong:
        raise PtxError(instruction.line, f"{wrong}: {instruction.text}")


def _computed(opcode: str, type_: str, words: AbstractSet[str]) -> tuple[str, int]:
    """Return what is wrong with an arithmetic instruction ("": nothing), and its first architecture (0: any)."""
    if type_ not in _RULES[opcode]:
        return f"{opcode} does not work on .{type_}", 0
    allowed, first = _RULES[opcode][type_]
    every = {word for word, mark in allowed.items() if mark.endswith("&")}
    every |= {"ftz"} if opcode == "rcp" and type_ == "f64" and "approx" in words else set()
    needed = {word for word, mark in allowed.items() if mark.endswith("!")}
    if every - words or (needed and not needed & words):
        return f"needs .{' and .'.join(sorted(every)) or ' or .'.join(sorted(needed))}", 0
    if any(both <= words for both in _TOGETHER):
        return "two modifiers exclude each other", 0
    later = [int(allowed[word].partition(">")[2] or 0) for word in words & allowed.keys()]
    return _unknown(words, allowed.keys()), max(first, 86 if "xorsign" in words else 0, *later, 0)


def _unknown(words: AbstractSet[str], allowed: AbstractSet[str]) -> str:
    return "".join(f".{word} is not supported here" for word in sorted(words - allowed)[:1])


def _compared(types: Sequence[str], words: AbstractSet[str], *, two: bool) -> tuple[str, int]:
    source, halves = types[-1], any(type_.startswith("bf16") for type_ in types)
    if source not in _COMPARABLE:
        return f".{source} is not compared", 0
    if two and source in ("f16", "bf16"):
        return f"a comparison of .{source} writes one predicate", 0
    kind = "f" if source[0] == "f" or source.startswith("bf") else source[0]
    allowed = {*_COMPARED[kind].split(), "and", "or", "xor"}
    flushes = source in ("f32", "f16", "f16x2") and not halves
    return _unknown(words, allowed | ({"ftz"} if flushes else set())), 90 if halves else 0


def _converted(target: str, source: str, words: AbstractSet[str]) -> tuple[str, int]:
    """Return what is wrong with a conversion ("": nothing), and its first architecture (0: any)."""
    kinds = {target, source}
    have, bits = TYPES[source], TYPES[target]
    covers = bits >= have if target[0] == source[0] else source[0] == "u" and bits > have
    if "sat" in words and ("bf16" in kinds or (target[0] in "us" and source[0] in "us" and covers)):
        return ".sat is not supported here", 0
    if "bf16" in kinds and kinds & {"u8", "s8"}:
        return "bf16 and 8 bits are not converted", 0
    if target == "tf32" and "rna" not in words:
        return "", 100 if "satfinite" in words else 90
    later = "bf16" in kinds and ("f32" not in kinds or (target == "f32" and "ftz" in words))
    return "", 89 if kinds & {"e4m3x2", "e5m2x2"} else 90 if later else 0
