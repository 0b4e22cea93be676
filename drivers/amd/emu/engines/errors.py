"""The errors that stop a queue, by what was wrong.

Not here: the classes and what they do to the machine (`drivers.amd.emu.machine.reports`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from drivers.amd.emu.machine.reports import Kind, QueueFault
from drivers.amd.layouts.events import QueueException

if TYPE_CHECKING:
    from hcq.layout import BitStruct


def host_fault(message: str) -> QueueFault:
    """Return the error of a bad ring, pointer or doorbell."""
    return QueueFault(Kind.HOST, message)


def packet_fault(message: str, exception: QueueException = QueueException.PACKET_UNSUPPORTED) -> QueueFault:
    """Return the error of a bad packet."""
    return QueueFault(Kind.METHOD, message, exception)


def dispatch_fault(message: str, exception: QueueException) -> QueueFault:
    """Return the error of a launch that does not fit its kernel."""
    return QueueFault(Kind.LAUNCH, message, exception)


def changed_fault(message: str) -> QueueFault:
    """Return the error of memory that was changed while in use."""
    return QueueFault(Kind.LIFETIME, message)


def stale_fault(message: str) -> QueueFault:
    """Return the error of missing cache maintenance."""
    return QueueFault(Kind.COHERENCE, message)


def unsupported(message: str) -> QueueFault:
    """Return the error of what is not emulated, though hardware may support it."""
    return QueueFault(Kind.UNSUPPORTED, message)


def check(packet: BitStruct, name: str) -> None:
    """Raise if a packet has bits, or values of fields, that its layout does not know."""
    found = packet.check()
    if found:
        raise packet_fault(f"{name}: {'; '.join(map(str, found))}")
