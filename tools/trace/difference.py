"""The difference of two lists of lines as unified text, in time that grows with their length.

Lists of up to `WINDOW` lines get the text of `difflib`. Of longer ones equal fronts and ends are set aside,
and each difference is compared in a window. Next: `__main__`, which compares captures.
"""

from __future__ import annotations

from difflib import Match, SequenceMatcher
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

WINDOW: Final = 256
"""The most lines that a list may have to get the text of `difflib`."""
_WIDTHS: Final = (16, 64, 256, 4096)
"""The lines of each list that are compared at a difference, until half of them are equal."""


def unified(one: Sequence[str], other: Sequence[str], names: tuple[str, str]) -> Iterator[str]:
    """Yield the unified difference of two lists of lines without their ends; no line if they are equal."""
    if one == other:
        return
    matcher = _Matcher(None, one, other)
    matcher.lines = one, other
    yield from (f"--- {names[0]}", f"+++ {names[1]}")
    for group in matcher.get_grouped_opcodes():
        (_, i, _, j, _), (_, _, i_end, _, j_end) = group[0], group[-1]
        yield f"@@ -{_range(i, i_end)} +{_range(j, j_end)} @@"
        for tag, i, i_end, j, j_end in group:
            if tag == "equal":
                yield from (f" {line}" for line in one[i:i_end])
                continue
            yield from (f"-{line}" for line in one[i:i_end])
            yield from (f"+{line}" for line in other[j:j_end])


def _range(start: int, end: int) -> str:
    """Return lines as the unified format counts them."""
    count = end - start
    return f"{start + 1}" if count == 1 else f"{start + (count > 0)},{count}"


class _Matcher(SequenceMatcher[str]):
    """The matcher of `difflib`, which finds the equal runs of long lists window by window."""

    lines: tuple[Sequence[str], Sequence[str]]

    def get_matching_blocks(self) -> list[Match]:
        one, other = self.lines
        if max(len(one), len(other)) <= WINDOW:
            return super().get_matching_blocks()
        return [*(run for run in _runs(one, other) if run.size), Match(len(one), len(other), 0)]


def _runs(one: Sequence[str], other: Sequence[str]) -> Iterator[Match]:
    """Yield the equal runs of two lists, in order. Some have no lines."""
    found, i, j = [Match(0, 0, 0)], 0, 0
    count, ends = 0, (len(one), len(other))
    while found:
        for run in found[:-1]:
            yield Match(i + run.a, j + run.b, run.size)
        a, b = i + found[-1].a, j + found[-1].b
        i, j = a + found[-1].size, b + found[-1].size
        while i < ends[0] and j < ends[1] and one[i] == other[j]:
            i, j = i + 1, j + 1
        yield Match(a, b, i - a)
        if not count:  # the equal front is known; the equal end has none of it
            while count < min(ends) - i and one[-1 - count] == other[-1 - count]:
                count += 1
            ends = len(one) - count, len(other) - count
        found = _window(one[i : min(ends[0], i + _WIDTHS[-1])], other[j : min(ends[1], j + _WIDTHS[-1])])
    yield Match(*ends, count)


def _window(one: Sequence[str], other: Sequence[str]) -> list[Match]:
    """Return equal runs after a difference, in order; the last may have no lines. Empty: a list has ended."""
    if not one or not other:
        return []
    tried: list[list[Match]] = []
    for width in _WIDTHS:
        few = width < WINDOW  # in more lines only rare ones are looked up
        matcher = SequenceMatcher(None, one[:width], other[:width], autojunk=not few)
        tried.append(matcher.get_matching_blocks())
        if 2 * _equal(tried[-1]) >= min(len(one), len(other), width):
            break
    else:
        width = WINDOW
        tried.sort(key=_equal)
    found = tried[-1]
    return [run for run in found if run.a + run.b < width] or found[:1]


def _equal(runs: Sequence[Match]) -> int:
    return sum(run.size for run in runs)
