"""The decoder: words to packets, and packets to text, for dumps, golden streams and checks.

It uses the layouts only, never the encoder, so that it can check the encoder's output.

Not here: the layouts of packets (`drivers.amd.layouts`), encoding (`encode`, `encode_aql`, `encode_sdma`).
Next: `ring`, which sends the words.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from drivers.amd.layouts import aql, pm4, pm4_generations, registers, sdma
from hcq.layout import MISSING, BitStruct

Named: TypeAlias = "Callable[[int], str]"
"""Returns the name of an address in a dump."""
_HIDDEN: Final = frozenset({"COUNT", "OPCODE", "TYPE", "DIMENSIONS", "IB_HEADER", "IB_VALID", "VALID"})
"""Fields that are left out, because every packet of a kind has the same value."""
_HEX_FROM: Final = 10


@dataclass(frozen=True, slots=True)
class Packet:
    """One packet of a stream."""

    at: int
    """Index of its first word."""
    name: str
    value: BitStruct
    """The decoded fields of the words that the layout covers."""
    data: tuple[int, ...] = ()
    """The words after the layout; for ACQUIRE_MEM the bits above COHER_SIZE_HI, if there are any."""

    @property
    def end(self) -> int:
        """Index of the word after it."""
        return self.at + self.value.WORDS + len(self.data)


_SIZE_HI, _SIZE_HI_BITS = 3, 0xFF
"""Index of the word of an ACQUIRE_MEM that holds COHER_SIZE_HI, and the mask of the field."""


def pm4_packets(words: Sequence[int], generation: int) -> Iterator[Packet]:
    """Yield the packets of a PM4 stream. Raises `ValueError` for an unknown, incomplete or invalid packet."""
    layouts, at = pm4_generations.packets(generation), 0
    while at < len(words):
        head = pm4.Header.from_int(words[at])
        if words[at] == pm4.NOP_ONE_DWORD:
            yield Packet(at, "NOP", head)
            at += 1
            continue
        layout = pm4.Header if head.OPCODE == pm4.Opcode.NOP else layouts.get(head.OPCODE)
        end = at + head.COUNT + 2
        if head.TYPE != pm4.TYPE_3 or head.check() or layout is None:
            raise ValueError(f"word {at} ({words[at]:#x}) is no PM4 packet of gfx{generation} that is known")
        if end > len(words):
            raise ValueError(
                f"{head!r} at word {at} needs {head.COUNT + 1} more words, {len(words) - at - 1} are left"
            )
        fixed = at + layout.WORDS
        longer = head.OPCODE in {pm4.Opcode.NOP, *pm4_generations.WITH_DATA}
        if (end != fixed and not longer) or end < fixed:
            raise ValueError(f"{head!r} at word {at}: {end - at} words, {layout.__name__} has {layout.WORDS}")
        fields, data = list(words[at:fixed]), tuple(words[fixed:end])
        if head.OPCODE == pm4.Opcode.ACQUIRE_MEM and (more := fields[_SIZE_HI] & ~_SIZE_HI_BITS):
            fields[_SIZE_HI] &= _SIZE_HI_BITS
            data = (more,)
        value = layout.from_words(fields)
        _checked(value, at)
        yield Packet(at, pm4.Opcode(head.OPCODE).name, value, data)
        at = end


def _checked(value: BitStruct, at: int) -> None:
    bad = value.check()
    if bad:
        raise ValueError(f"the packet at word {at}: {bad[0]}")


def pm4_text(words: Sequence[int], generation: int, name: Named | None = None) -> list[str]:
    """Return the text of a PM4 stream, one line for each packet; `name` returns the text of an address.

    Raises `ValueError` as `pm4_packets` does, and for an unknown register.
    """
    lines = []
    for packet in pm4_packets(words, generation):
        lines += _pm4_lines(packet, generation, name or hex)
    return lines


def _pm4_lines(packet: Packet, generation: int, name: Named) -> list[str]:
    value = packet.value
    if isinstance(value, pm4.SetShReg):
        return _registers(value.REG_OFFSET, packet.data, generation, name)
    if isinstance(value, pm4_generations.AcquireMem):
        text = fields_text(pm4_generations.GcrCntl.from_int(value.GCR_CNTL))
        return [f"ACQUIRE_MEM {text}{_range(value)}{_wider(packet)}"]
    if isinstance(value, pm4_generations.AcquireMemGfx9):
        text = fields_text(value, skip=("SIZE_LO", "SIZE_HI", "BASE_LO", "BASE_HI", "POLL_INTERVAL"))
        return [f"ACQUIRE_MEM {text}{_range(value)}{_wider(packet)}"]
    if isinstance(value, pm4.DispatchDirect):
        start = fields_text(registers.Initiator.from_int(value.INITIATOR))
        return [f"DISPATCH_DIRECT {value.DIM_X} x {value.DIM_Y} x {value.DIM_Z} groups, {start}"]
    if isinstance(value, pm4.WriteData):
        numbers = " ".join(map(hex, packet.data))
        return [f"WRITE_DATA {fields_text(value, name=name)} <- {numbers}"]
    return [f"{packet.name} {fields_text(value, name=name)}"]


def _range(value: pm4_generations.AcquireMem | pm4_generations.AcquireMemGfx9) -> str:
    """Describe the address range of an acquire; "" for all of memory."""
    size = value.SIZE_LO | value.SIZE_HI << 32
    base = value.BASE_LO | value.BASE_HI << 32
    return "" if size == (1 << 40) - 1 and not base else f" of {size:#x} units from {base:#x}"


def _wider(packet: Packet) -> str:
    """Describe set bits above COHER_SIZE_HI (see `AmdQuirks.coher_size`); "" if there are none."""
    return "".join(f", {more:#x} above COHER_SIZE_HI" for more in packet.data)


def _registers(first: int, data: Sequence[int], generation: int, name: Named) -> list[str]:
    """Describe a write of registers in one line; an address in two registers is one value."""
    names, shown = registers.register_names(generation), []
    values = dict(enumerate(data, first))
    while values:
        at = min(values)
        word = values.pop(at)
        full = names.get(at)
        if full is None:
            raise ValueError(f"gfx{generation} has no compute register at {at:#x}")
        register = full.removeprefix("COMPUTE_")
        layout = registers.FIELDS.get(full, {}).get(generation)
        upper = values.get(at + 1)
        if upper is not None and register.endswith("_LO"):
            shift = registers.PROGRAM_SHIFT if "PGM" in register or "SCRATCH" in register else 0
            shown.append(f"{register.removesuffix('_LO')}={name((word | values.pop(at + 1) << 32) << shift)}")
        elif upper is not None and register.startswith("USER_DATA"):
            # The pairs that this driver writes are addresses.
            text = name(word | values.pop(at + 1) << 32)
            shown.append(f"{register}..{int(register.removeprefix('USER_DATA_')) + 1}={text}")
        elif layout is not None:
            shown.append(f"{register}=({fields_text(layout.from_int(word))})")
        else:
            shown.append(f"{register}={_number(word)}")
    return [f"SET_SH_REG {' '.join(shown)}"]


def aql_text(words: Sequence[int], generation: int, name: Named | None = None) -> list[str]:
    """Return the text of a stream of `AqlEncoder`: packets, and the inline PM4 words of vendor packets.

    Raises `ValueError` as `aql_packet` and `pm4_text`.
    """
    lines, at = [], 0
    while at < len(words):
        value = aql_packet(words, at)
        lines.append(f"{type(value).__name__} {fields_text(value, name=name or hex)}")
        at += aql.PACKET_WORDS
        if isinstance(value, aql.Pm4Ib) and not value.IB_ADDRESS_LO and not value.IB_ADDRESS_HI:
            lines += [f"  {line}" for line in pm4_text(words[at : at + value.IB_SIZE], generation, name)]
            at += -(-value.IB_SIZE // aql.PACKET_WORDS) * aql.PACKET_WORDS
    return lines


def aql_packet(words: Sequence[int], at: int) -> BitStruct:
    """Return the packet at word `at`. Raises `ValueError` for an unknown, incomplete or invalid packet."""
    head = aql.Header.from_int(words[at] & 0xFFFF)
    layout = aql.PACKETS.get(head.TYPE)
    if head.TYPE == aql.Type.VENDOR_SPECIFIC:
        layout = aql.VENDOR_PACKETS.get(words[at] >> 16)
    part = words[at : at + aql.PACKET_WORDS]
    if layout is None or len(part) < aql.PACKET_WORDS:
        raise ValueError(f"word {at} ({words[at]:#x}) begins no AQL packet that is known")
    value = layout.from_words(part)
    _checked(value, at)
    return value


def sdma_packets(words: Sequence[int], version: tuple[int, ...]) -> Iterator[Packet]:
    """Yield the packets of SDMA words. Raises `ValueError` for an unknown, incomplete or invalid packet."""
    layouts, at = sdma.packets(version), 0
    while at < len(words):
        head = sdma.Head.from_int(words[at] & 0xFFFF)
        layout = layouts.get(head.OP)
        if layout is None:
            raise ValueError(f"word {at} ({words[at]:#x}) is no SDMA packet of v{version[0]} that is known")
        if at + layout.WORDS > len(words):
            raise ValueError(f"{head!r} at word {at} needs {layout.WORDS} words, {len(words) - at} are left")
        end = at + sdma.packet_words(words, at)
        value = layout.from_words(words[at : at + layout.WORDS])
        _checked(value, at)
        yield Packet(at, sdma.Op(head.OP).name, value, tuple(words[at + layout.WORDS : end]))
        at = end


def sdma_text(words: Sequence[int], version: tuple[int, ...], name: Named | None = None) -> list[str]:
    """Return the text of an SDMA stream; consecutive NOPs are one line. Raises as `sdma_packets`."""
    lines: list[str] = []
    nops = 0
    for packet in [*sdma_packets(words, version), None]:
        if packet is not None and packet.name == "NOP":
            nops += 1
            continue
        if nops:
            lines.append(f"NOP x {nops}")
            nops = 0
        if packet is not None:
            lines.append(_sdma_line(packet, name or hex))
    return lines


def _sdma_line(packet: Packet, name: Named) -> str:
    value = packet.value
    if isinstance(value, sdma.CopyLinear):
        return f"COPY {value.COUNT_MINUS_ONE + 1} bytes {fields_text(value, ('COUNT_MINUS_ONE',), name=name)}"
    if isinstance(value, sdma.ConstFill):
        return f"CONST_FILL {value.COUNT + 4} bytes {fields_text(value, name=name)}"
    return f"{packet.name} {fields_text(value, name=name)}"


def fields_text(value: BitStruct, skip: Sequence[str] = (), name: Named = hex) -> str:
    """Return "NAME=value" for each field that is not 0, or is a required field; "0" if there is none.

    NAME_LO and NAME_HI are shown as one number NAME. `name` returns the text of an address. Fields in `skip`
    are left out.
    """
    shown, fields = [], type(value).FIELDS
    for field, spec in fields.items():
        if field in skip or field in _HIDDEN or (field.endswith("_HI") and f"{field[:-3]}_LO" in fields):
            continue
        number: object = getattr(value, field)
        label = field
        if f"{field.removesuffix('_LO')}_HI" in fields and field.endswith("_LO"):
            label = field.removesuffix("_LO")
            number = int(getattr(value, field)) | int(getattr(value, f"{label}_HI")) << 32
            address = label != "DATA"
        else:
            address = spec.width == 64
        if not number and spec.default is not MISSING:
            continue
        text = name(number) if address and isinstance(number, int) and number else _number(number)
        shown.append(f"{label}={text}")
    return " ".join(shown) or "0"


def _number(value: object) -> str:
    if isinstance(value, enum.Enum):
        return value.name or str(value.value)
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, tuple):
        return "[" + ", ".join(map(_number, value)) + "]"
    if isinstance(value, int):
        return hex(value) if value >= _HEX_FROM else str(value)
    return str(value)
