"""Push buffers: the encoded words of a submission or a replay slot. Encoders append to them, rings send them.

Not here: the words, which each driver encodes (`hcq.driver.Encoder`); patching them at a replay
(`hcq.replay.relocations`).
"""

from __future__ import annotations

from array import array
from collections.abc import MutableSequence, Sequence
from typing import Protocol

from hcq.errors import UsageError
from hcq.layout import BitStruct
from hcq.params import Expr, Param, Patch, as_expr


class ArgumentMemory(Protocol):
    """The source of memory for the argument blocks of a `PushBuffer`."""

    def room(self, pushbuffer: PushBuffer, size: int) -> None:
        """Point `pushbuffer` (`view`, `base`, `at`, `limit`) at memory with `size` free bytes, or raise."""


class PushBuffer:
    """Encoded words, the patches of open fields, and a window of argument memory.

    A queue reuses one PushBuffer: an encoder or a ring must not keep a reference to it or its lists after it
    returns. Not thread-safe.
    """

    __slots__ = ("at", "base", "calls", "limit", "memory", "patches", "view", "word_bits", "words")

    def __init__(self, word_bits: int, memory: ArgumentMemory) -> None:
        self.word_bits = word_bits
        """32 or 64: `DeviceInfo.word_bits`."""
        self.words: MutableSequence[int] = []
        """An array of words is copied to a ring faster: an encoder may put one in the place of the list."""
        self.patches: list[Patch] = []
        self.calls: list[tuple[int, int]] = []
        """(position in `words`, ring entry that runs prebuilt words), for rings that have such entries.

        Other drivers leave it empty.
        """
        self.memory = memory
        self.view = memoryview(b"").cast("Q")
        """The current window of argument memory as u64 elements. Its bytes [at, limit) are free."""
        self.base = 0
        """Device address of the window's first byte."""
        self.at = 0
        """Byte offset of the window's free bytes."""
        self.limit = 0
        """Byte offset of their end."""

    def place(self, qwords: array[int] | Sequence[int], *, align: int = 64) -> int:
        """Copy u64 words into argument memory; return their device address, a multiple of `align`.

        `align` is a power of two of at least 8 bytes. Raises `UsageError` for a number that does not fit u64,
        and as `ArgumentMemory.room`.
        """
        at = (self.at + align - 1) & -align
        end = at + 8 * len(qwords)
        if end > self.limit:
            size = end - at
            self.memory.room(self, size + align)
            at = (self.at + align - 1) & -align
            end = at + size
        try:
            self.view[at >> 3 : end >> 3] = qwords  # type: ignore[assignment]  # an array, most often
        except TypeError:
            try:
                self.view[at >> 3 : end >> 3] = array("Q", qwords)
            except (OverflowError, TypeError) as error:
                raise UsageError(f"argument memory takes u64 words: {error}") from None
        self.at = end
        return self.base + at

    def write(self, va: int, qword: int) -> None:
        """Overwrite the u64 at `va`, inside the block that was placed last."""
        self.view[va - self.base >> 3] = qword

    def patch_word(self, index: int, word: Param | Expr, *, lo: int = 0, width: int | None = None) -> None:
        """Record that bits [lo, lo + width) of word `index` receive `word`; `width` None: up to the top bit.

        The encoder leaves those bits 0. A number in several words has one patch for each word, the lowest
        first, each with `word >> bits patched so far`.
        """
        bits = self.word_bits - lo if width is None else width
        self.patches.append(Patch("words", index * self.word_bits // 8, lo, bits, as_expr(word)))

    def patch_field(
        self, index: int, layout: type[BitStruct], name: str, word: Param | Expr, *, element: int = 0
    ) -> None:
        """Record that field `name` of the `layout` at word `index` receives `word`, in the field's units.

        `element` is the index in a field with `count` > 1. Raises as `BitStruct.sites`.
        """
        for site in layout.sites(name, element):
            self.patch_word(index + site.word, as_expr(word) >> site.shift, lo=site.lo, width=site.width)

    def patch_memory(self, va: int, word: Param | Expr, *, lo: int = 0, width: int = 64) -> None:
        """Record that bits [lo, lo + width) of the number at `va`, in a placed block, receive `word`."""
        self.patches.append(Patch("memory", va, lo, width, as_expr(word)))

    def clear(self) -> None:
        """Clear words, patches and calls. Placed blocks stay."""
        del self.words[:]
        if self.patches or self.calls:
            self.patches.clear()
            self.calls.clear()
