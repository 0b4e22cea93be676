"""The search for a kernel image, the uploaded file with the code at a program address; the check of the code.

The uploaded code is compared with the file byte by byte, and relocated words by their formulas. The search
covers device memory, where drivers upload whole files: first near the code, then elsewhere. Of several files
with the same code the nearest is used. A test may register an image with `learn` instead.

A launch error is a `ChannelError`; a malformed file raises `UsageError`.

Not here: parsing the file (`cubins`), checks of the launch (`fit`). Next: `grid`, which runs the image's PTX.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from drivers.elf import HEADER_BYTES
from drivers.kernel import view_at
from drivers.nv.layouts.cubin import PREFETCH_PAD, TEXT_ALIGN, Relocation
from drivers.nv.layouts.fault import MmuAccess
from emulator.nv.engines.cubins import Cubin, CubinPatch, KernelInfo, mask_of, read_patch
from emulator.nv.reports import FindingKind, launch_error, mmu_fault
from emulator.shared.vaspace import AccessKind
from hcq.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from emulator.shared.memory import GpuMapping
    from emulator.shared.vaspace import VaSpace

_REACH: Final = 8 << 20
"""Bytes around a program address that are searched for its image."""
_MAGIC: Final = b"\x7fELF\x02\x01\x01"
_LARGEST: Final = 64 << 20
"""The most bytes of a file, and of a mapping far from the code that is searched."""
KEPT: Final = 512
"""Images of one machine that stay parsed. Others are parsed again when their code runs at a new address."""
_SECTION_BYTES: Final = 64
"""Bytes of a section header."""


@dataclass(slots=True)
class LoadedImage:
    """The kernel at a program address."""

    cubin: Cubin
    kernel: KernelInfo
    program: int
    code: bytes
    """The uploaded code, after relocation."""
    bases: dict[int, int]
    """Index of a section -> its address; sections that no relocated word determines are absent."""


class Images:
    """The images that one machine has found: those that ran last, and those that a test has registered."""

    def __init__(self, *, most: int = KEPT) -> None:
        self._most = most
        self._learned: dict[bytes, Cubin] = {}
        self._found: dict[bytes, Cubin] = {}
        """The images that were found in device memory, the latest used last."""

    def __len__(self) -> int:
        return len(self._learned) + len(self._found)

    def learn(self, data: bytes) -> Cubin:
        """Register an image for the life of the machine; equal images are parsed once.

        Raises as `Cubin.parse`.
        """
        key = _digest(data)
        if key not in self._learned:
            self._learned[key] = self._found[key] if key in self._found else Cubin.parse(data)
        return self._learned[key]

    def find(self, space: VaSpace, program: int) -> LoadedImage:
        """Return the verified kernel at a program address.

        Raises an MMU fault if the address is not mapped. Raises a launch error if it is misaligned, no image
        has the code, or a relocated word is wrong.
        """
        mapping = space.map.find(program)
        if mapping is None:
            raise mmu_fault(
                program,
                MmuAccess.READ,
                f"the program address {program:#x} is not mapped; nearest: {space.map.nearest(program)}",
            )
        if program % TEXT_ALIGN:
            raise launch_error(f"the program address {program:#x} is not aligned to {TEXT_ALIGN} bytes")
        best: tuple[int, str] = (-1, "no image was uploaded")
        broken: dict[int, str] = {}
        for key, cubin in self._candidates(space, mapping, program, broken):
            for kernel in cubin.kernels.values():
                same, seen = _compare(mapping, program, kernel)
                if same == len(kernel.code):
                    self._keep(key, cubin)
                    return self._verified(space, program, cubin, kernel)
                best = max(
                    best, (same, f"it comes nearest to {kernel.name}, whose byte {same:#x} differs ({seen})")
                )
        reasons = "".join(f"; {reason}" for reason in broken.values())
        raise launch_error(f"no image has the code at {program:#x}: {best[1]}{reasons}")

    def _candidates(
        self, space: VaSpace, mapping: GpuMapping, program: int, broken: dict[int, str]
    ) -> Iterator[tuple[bytes, Cubin]]:
        """Yield every image once: those near the address by distance, then known ones, then those elsewhere.

        Images that cannot be parsed are added to `broken`: address -> reason.
        """
        seen: set[bytes] = set()
        near = sorted(_images_in(mapping, program), key=lambda one: _distance(one, program))
        yield from self._parsed(near, seen, broken)
        for known in (self._found, self._learned):
            for key in [key for key in reversed(known) if key not in seen]:
                seen.add(key)
                yield key, known[key]
        for other in space.map.mappings():
            if other is not mapping and other.size <= _LARGEST:
                yield from self._parsed(_images_in(other, other.va), seen, broken)

    def _parsed(
        self, places: Iterable[tuple[int, bytes]], seen: set[bytes], broken: dict[int, str]
    ) -> Iterator[tuple[bytes, Cubin]]:
        """Yield the images of `places` (address, bytes) that are not in `seen`.

        Add their digests to `seen`.
        """
        for at, raw in places:
            key = _digest(raw)
            if key in seen:
                continue
            seen.add(key)
            known = self._learned.get(key) or self._found.get(key)
            try:
                yield key, known or Cubin.parse(raw)
            except UsageError as error:
                broken[at] = f"the image at {at:#x} is broken: {error}"

    def _keep(self, key: bytes, cubin: Cubin) -> None:
        """Keep an image as the latest used; drop the ones used longest ago if there are too many."""
        if key in self._learned:
            return
        self._found.pop(key, None)
        self._found[key] = cubin
        while len(self._found) > self._most:
            del self._found[next(iter(self._found))]

    def _verified(self, space: VaSpace, program: int, cubin: Cubin, kernel: KernelInfo) -> LoadedImage:
        """Return the image of a kernel at a program address, with its other sections found and checked."""
        code = space.map.read(program, len(kernel.code))
        what = f"instruction prefetch, {PREFETCH_PAD} bytes past the end of {kernel.name},"
        space.check_range(program + len(code), PREFETCH_PAD, AccessKind.PREFETCH, what)
        loaded = LoadedImage(
            cubin,
            kernel,
            program,
            code,
            {kernel.text.index: program},
        )
        _solve(space, loaded, [(code, patch) for patch in kernel.patches])
        return loaded


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()


def _images_in(mapping: GpuMapping, program: int) -> list[tuple[int, bytes]]:
    """Return the address and the bytes of every ELF file in a mapping within `_REACH` of an address."""
    first = max(mapping.va, program - _REACH)
    last = min(mapping.end, max(program, mapping.va) + _REACH)
    data = view_at(mapping.host + first - mapping.va, last - first).tobytes()
    found = []
    at = data.find(_MAGIC)
    while at >= 0:
        size = _elf_size(data, at)
        if size:
            found.append((first + at, data[at : at + size]))
        at = data.find(_MAGIC, at + max(size, 1))
    return found


def _distance(place: tuple[int, bytes], program: int) -> int:
    """Return the distance in bytes from an address to a file; 0 inside the file."""
    start, raw = place
    return max(start - program, program - start - len(raw) + 1, 0)


def check_bank(space: VaSpace, loaded: LoadedImage, bank: int, content: bytes) -> None:
    """Compare the contents of a constant bank with the image's section; check its relocated words.

    Raises a launch error. Of bank 3 only the relocated words are checked.
    """
    section = loaded.kernel.banks[bank]
    patches = loaded.cubin.tables[section.index]
    wanted = mask_of(patches, loaded.cubin.elf.content(section))
    if bank != 3 and mask_of(patches, content[: len(wanted)]) != wanted:
        raise launch_error(f"constant bank {bank} does not hold {section.name} of {loaded.kernel.name}")
    _solve(space, loaded, [(content, patch) for patch in patches])


def _solve(space: VaSpace, loaded: LoadedImage, places: list[tuple[bytes, CubinPatch]]) -> None:
    """Derive the addresses of sections from relocated words, then check every word by its formula.

    `places` are contents and relocations. Addresses are added to `loaded.bases`. Raises a launch error.
    """
    halves: dict[int, dict[int, int]] = {}
    for content, patch in places:
        value = read_patch(content, patch.offset, patch.type)
        if patch.target in loaded.bases:
            continue
        if patch.type in (Relocation.R_CUDA_ABS32_LO, Relocation.R_CUDA_ABS32_HI):
            half = halves.setdefault(patch.value, {})
            half[patch.type] = value
            if len(half) == 2:
                whole = half[Relocation.R_CUDA_ABS32_HI] << 32 | half[Relocation.R_CUDA_ABS32_LO]
                loaded.bases[patch.target] = whole - patch.value
        else:
            loaded.bases[patch.target] = value - patch.value
    for content, patch in places:
        base = loaded.bases.get(patch.target)
        if base is None:
            raise launch_error(f"the address of {patch.name} cannot be derived from the relocated words")
        address = base + patch.value
        wanted = {
            Relocation.R_CUDA_ABS32_LO: address & 0xFFFF_FFFF,
            Relocation.R_CUDA_ABS32_HI: address >> 32,
        }.get(Relocation(patch.type), address)
        seen = read_patch(content, patch.offset, patch.type)
        if seen != wanted:
            raise launch_error(
                f"the word at {patch.offset:#x} of {loaded.kernel.name} should refer to {patch.name}: "
                f"wanted {wanted:#x} by relocation {Relocation(patch.type).name}, seen {seen:#x}"
            )
    for target in {patch.target for _, patch in places}:
        _judge_section(space, loaded, target)


def _judge_section(space: VaSpace, loaded: LoadedImage, index: int) -> None:
    """Raise `ChannelError` for a section that relocated words refer to, if it is misplaced or changed."""
    section, base = loaded.cubin.elf.sections[index], loaded.bases[index]
    if base % max(section.align, 1):
        raise launch_error(f"{section.name} at {base:#x} is not aligned to {section.align}")
    if space.map.find(base, max(section.size, 1)) is None:
        raise launch_error(
            f"{section.name} should lie at {base:#x} (+{section.size:#x}), which is not mapped"
        )
    other = next((k for k in loaded.cubin.kernels.values() if k.text.index == index), None)
    if other is not None:
        code = space.map.read(base, len(other.code))
        if mask_of(other.patches, code) != mask_of(other.patches, other.code):
            raise launch_error(
                f"{section.name} should lie at {base:#x}, where other bytes are", FindingKind.LAUNCH
            )


def _compare(mapping: GpuMapping, program: int, kernel: KernelInfo) -> tuple[int, str]:
    """Return the number of equal bytes before the first difference, and a description of that.

    Bits that relocations write are not compared.
    """
    size = len(kernel.code)
    if program + size > mapping.end:
        return 0, "the mapping ends before"
    seen = mask_of(kernel.patches, bytes(view_at(mapping.host + program - mapping.va, size)))
    wanted = mask_of(kernel.patches, kernel.code)
    if seen == wanted:
        return size, ""
    at = next(i for i, (a, b) in enumerate(zip(seen, wanted, strict=True)) if a != b)
    return at, f"wanted {wanted[at]:#04x}, seen {seen[at]:#04x}"


def _elf_size(data: bytes, at: int) -> int:
    """Return the size in bytes of the ELF file at `at`, or 0 if it is truncated."""
    if at + HEADER_BYTES > len(data):
        return 0
    (table,) = struct.unpack_from("<Q", data, at + 0x28)
    entry, count = struct.unpack_from("<HH", data, at + 0x3A)
    end = int(table) + int(entry) * int(count)
    if entry < _SECTION_BYTES or end > _LARGEST or at + end > len(data):
        return 0
    for i in range(count):
        kind, offset, size = (
            struct.unpack_from(form, data, at + table + i * entry + where)[0]
            for form, where in (("<I", 4), ("<Q", 0x18), ("<Q", 0x20))
        )
        if kind != 8:
            end = max(end, offset + size)
    return end if at + end <= len(data) else 0
