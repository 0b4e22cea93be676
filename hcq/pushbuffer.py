"""Push buffers: the encoded words of a submission or a replay slot; encoders fill them, rings take them.

Not here: the words, which each driver encodes (`hcq.driver.Encoder`); patching them at a replay
(`hcq.replay.relocations`).
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Protocol

from hcq.errors import UsageError
from hcq.params import Expr, Param, Patch, as_expr

if TYPE_CHECKING:
    from collections.abc import MutableSequence, Sequence

    from hcq.layout import BitStruct


class ArgumentMemory(Protocol):
    """Where a PushBuffer gets room for argument blocks."""

    def room(self, pushbuffer: PushBuffer, size: int) -> None:
        """Give `pushbuffer` a window (`view`, `base`, `at`, `limit`) with `size` free bytes, or raise."""
        ...


class PushBuffer:
    """Words in order, what is still open in them, and the argument memory they refer to.

    A queue reuses one PushBuffer: an encoder and a ring may not keep it, nor its lists, after they return.
    """

    __slots__ = ("at", "base", "calls", "limit", "memory", "patches", "view", "word_bits", "words")

    def __init__(self, word_bits: int, memory: ArgumentMemory) -> None:
        self.word_bits = word_bits
        """32 or 64: `DeviceInfo.word_bits`."""
        self.words: MutableSequence[int] = []
        """A list to encode into; an array, which rings copy quickly, when it is sent again and again."""
        self.patches: list[Patch] = []
        self.calls: list[tuple[int, int]] = []
        """(position in `words`, ring entry): here the ring gets an entry that runs prebuilt words.

        For drivers that mark these in ring entries; others leave it empty.
        """
        self.memory = memory
        self.view = memoryview(b"").cast("Q")
        """The current window of argument memory: u64 elements; bytes [at, limit) are free."""
        self.base = 0
        """Device address of the window's first byte."""
        self.at = 0
        self.limit = 0

    def place(self, qwords: array[int] | Sequence[int], *, align: int = 64) -> int:
        """Copy u64 words into memory of this submission or copy; return their device address.

        `align` is a power of two, at least 8. A number that does not fit u64 is a `UsageError`.
        """
        count = len(qwords)
        size = 8 * count
        at = (self.at + align - 1) & -align
        if at + size > self.limit:
            self.memory.room(self, size + align)
            at = (self.at + align - 1) & -align
        first = at >> 3
        if qwords.__class__ is not array:
            try:
                qwords = array("Q", qwords)
            except (OverflowError, TypeError) as error:
                raise UsageError(f"argument memory takes u64 words: {error}") from None
        self.view[first : first + count] = qwords
        self.at = at + size
        return self.base + at

    def write(self, va: int, qword: int) -> None:
        """Store one u64 anew in what was placed last."""
        self.view[va - self.base >> 3] = qword

    def patch_word(self, index: int, word: Param | Expr, *, lo: int = 0, width: int | None = None) -> None:
        """Record that bits [lo, lo + width) of word `index` hold `word`; `width` None: the rest of it.

        The encoder leaves those bits 0. A number over several words is patched lowest piece first, each next
        one with `word >> bits so far`.
        """
        bits = self.word_bits - lo if width is None else width
        self.patches.append(Patch("words", index * self.word_bits // 8, lo, bits, as_expr(word)))

    def patch_field(
        self, index: int, layout: type[BitStruct], name: str, word: Param | Expr, *, place: int = 0
    ) -> None:
        """Record that field `name` of the `layout` at word `index` holds `word`, in the field's units."""
        for site in layout.sites(name, place):
            self.patch_word(index + site.word, as_expr(word) >> site.shift, lo=site.lo, width=site.width)

    def patch_memory(self, va: int, word: Param | Expr, *, lo: int = 0, width: int = 64) -> None:
        """Record that bits [lo, lo + width) of the number at `va`, in placed memory, hold `word`."""
        self.patches.append(Patch("memory", va, lo, width, as_expr(word)))

    def clear(self) -> None:
        """Clear words, patches and calls; argument memory stays placed."""
        self.words.clear()
        if self.patches:
            self.patches.clear()
        if self.calls:
            self.calls.clear()
