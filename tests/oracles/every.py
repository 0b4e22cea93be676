"""Expressions of every method of a kind over tensors of many forms: products of tables.

The forms: parts with strides, transposed, in reverse order, of no axes, of sizes 0 and 1, and of each kind of
dtype. `large` has more elements than a workgroup and an odd number of them.

Not here: expressions that stand alone (`expressions`).
"""

from __future__ import annotations

import re
from typing import Final


def _words(text: str) -> list[str]:
    return text.split()


FORMS: Final = (
    *("part", "nc[:2, 3:]", "neg[3:, 5:]", "s", "one", "e", "z"),
    *("h", "d", "i[:2, :2]", "t", "m[:2, :2]"),
)
UNARY: Final = _words("""
abs absolute acos acosh angle arccos arccosh arcsin arcsinh arctan arctanh asin asinh atan atanh ceil cos
cosh deg2rad digamma erf erfc erfinv exp exp2 expm1 fix floor frac isfinite isinf isnan isneginf isposinf
isreal lgamma log log10 log1p log2 logical_not logit nan_to_num neg negative positive rad2deg reciprocal
relu round rsqrt sgn sigmoid sign signbit sin sinc sinh sqrt square tan tanh trunc i0 conj_physical
bitwise_not bool long double half float int isreal resolve_conj resolve_neg clone contiguous detach
""")
NOT_IN_PLACE: Final = _words("""
angle isfinite isinf isnan isneginf isposinf isreal positive signbit bool long double half float int
resolve_conj resolve_neg clone contiguous detach
""")
"""Methods of `UNARY` without a form that changes its tensor."""
CHANGED: Final = ("part", "s", "e", "h", "i[:2, :2]", "m[:2, :2]")
BINARY: Final = _words("""
add sub mul div multiply subtract divide true_divide floor_divide remainder fmod pow float_power atan2
arctan2 hypot copysign nextafter maximum minimum fmax fmin logaddexp logaddexp2 xlogy heaviside ldexp gt
ge lt le eq ne greater greater_equal less less_equal not_equal logical_and logical_or logical_xor
bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift gcd lcm
""")
PAIRS: Final = (
    *(("part", "s"), ("one", "part"), ("a[:, :3]", "part"), ("b[:3]", "neg[2:, 4:]"), ("e", "b[:3]")),
    *(("i[:, :3]", "part"), ("h", "part"), ("i[:, :3].abs()", "k[0, :3]"), ("t", "n8[:2].abs()")),
    *(("m[:, :3]", "w"), ("part", "2"), ("i[:2, :2]", "3"), ("part", "a")),
)
CHANGING: Final = _words("""
add_ sub_ mul_ div_ multiply_ subtract_ divide_ true_divide_ floor_divide_ remainder_ fmod_ pow_
float_power_ atan2_ arctan2_ hypot_ copysign_ nextafter_ xlogy_ heaviside_ ldexp_ gt_ ge_ lt_ le_ eq_ ne_
greater_ greater_equal_ less_ less_equal_ not_equal_ logical_and_ logical_or_ logical_xor_ bitwise_and_
bitwise_or_ bitwise_xor_ bitwise_left_shift_ bitwise_right_shift_ gcd_ lcm_
""")
WRITTEN: Final = (
    *(("part", "b[:3]"), ("i[:, :3]", "k[0, :3]"), ("i[:, :3]", "part.detach()")),
    *(("b[:3]", "part"), ("e", "s")),
)
REDUCTIONS: Final = _words("""
sum prod mean amax amin all any count_nonzero argmax argmin std var logsumexp nansum nanmean median norm
max min
""")
RUNNING: Final = ("cumsum", "cumprod", "logcumsumexp", "softmax", "log_softmax", "sort", "argsort", "cummax")
REDUCED: Final = ("part", "nc[:2, 3:]", "neg[3:, 5:]", "s", "one", "e", "z", "h", "i[:2, :3]", "t", "m")
MOVED: Final = ("part", "nc[:2, 3:]", "neg[3:, 5:]", "s", "one", "e", "z", "i[:2, :3]", "m")
MOVES: Final = _words("""
reshape(-1) ravel() flatten() t() T transpose(0,-1) swapdims(0,-1) swapaxes(-1,0) permute(1,0) squeeze()
squeeze(0) unsqueeze(0) unsqueeze(-1) flip(0) flip(-1) fliplr() flipud() roll(1) roll(1,0) tril() triu(1)
expand(2,-1,-1) repeat(2,1) tile(2) narrow(0,0,1) select(0,0) unbind(0) split(1) chunk(2) unsafe_split(1)
unsafe_chunk(2) unsafe_split_with_sizes([1,1]) diagonal() diag() rot90() view(-1) numel() ndim tolist()
numpy().sum() is_floating_point() is_conj() is_neg() is_signed() is_complex() is_inference() get_device()
to_dense() broadcast_to(3,3) repeat_interleave(2) diff() movedim(0,-1) take(torch.tensor([0]))
masked_fill(m[:1,:1],1) reshape_as(one) expand_as(sq) view_as(one) type_as(d) new_empty((2,)).shape
new_full((2,),1) long() frexp() storage_offset()
""")
LARGE: Final = _words("""
sin() exp() log1p() tanh() sigmoid() erf() lgamma() sqrt() abs() neg() round() softmax(0) cumsum(0)
sort(0).values flip(0) roll(7) msort() add(1) mul(3) pow(1.5) floor_divide(0.3) fmod(0.3)
""")
"""Calls with results as large, of which some elements are compared."""
SUMMED: Final = _words("""
sum() mean() amax() argmin() std() logsumexp(0) median() norm() var() all() any() unique() argmax() min()
""")
BIG: Final = "(torch.arange(100003) % 1013 * 0.001 + 0.001)"


def _products() -> list[str]:
    return [
        *[f"{x}.{name}()" for name in dict.fromkeys(UNARY) for x in FORMS],
        *[f"{x}.{n}_()" for n in dict.fromkeys(UNARY) if n not in NOT_IN_PLACE for x in CHANGED],
        *[f"{x}.{name}({y})" for name in BINARY for x, y in PAIRS],
        *[f"{x}.{name}({y})" for name in CHANGING for x, y in WRITTEN],
        *[f"{x}.{name}({args})" for name in REDUCTIONS for x in REDUCED for args in _arguments(name)],
        *[f"{x}.{name}({axis})" for name in RUNNING for x in REDUCED for axis in (0, -1)],
        *[f"{x}.{move}" for move in MOVES for x in MOVED],
        *[f"{BIG}.{call}[::9973]" for call in LARGE],
        *[f"{BIG}.{call}" for call in SUMMED],
    ]


def _arguments(name: str) -> tuple[str, ...]:
    if name == "logsumexp":
        return ("0", "-1, True")
    if name == "norm":
        return ("", "2, 0", "1, -1, True")
    return ("", "0", "-1, True") if name not in {"std", "var", "count_nonzero"} else ("", "0")


LEFT_OUT: Final = re.compile(
    r"d\.sgn\(\)"  # PyTorch 2.14 gives a tensor without memory
    r"|.*\.logical_\w+_\(.*"  # PyTorch passes the gradient of the bools on
    r"|[hd]\.digamma_?\(\)"  # the gradient at a pole: NaN here
    r"|t\.(all|any)\(.*"  # PyTorch gives uint8, bool here
)
"""Expressions whose answers differ, with the reasons."""
EVERY: Final = [text for text in dict.fromkeys(_products()) if not LEFT_OUT.fullmatch(text)]
