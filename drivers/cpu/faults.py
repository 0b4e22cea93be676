"""Fault reports of the `cpu` device, and packets in execution as text.

The only fault of the device is an invalid packet, which the processor refuses: it halts the device. A kernel
runs in this process, so a kernel that faults ends the process.

Not here: polling for a fault (`device`), refusing a packet (`processor.report`). Next: `device`.
"""

from __future__ import annotations

from collections.abc import Mapping

from drivers.cpu.layouts import LAYOUTS, PACKET, Fault, Op, Packet, Pool, Slot, decode
from drivers.kernel import view_at
from hcq.errors import FaultKind, FaultReport


def fault_report(device: str, pool: Pool, queue: str) -> FaultReport:
    """Return the report of the packet that the processor refused; `queue` is the label of its queue."""
    words = view_at(pool.fault_packet, PACKET).cast("Q")
    reasons = {
        Fault.UNKNOWN_OP: f"unknown op {pool.fault_op:#x}",
        Fault.NESTED_INDIRECT: "an INDIRECT among the packets of another",
        Fault.BAD_WIDTH: "a WRITE that is neither 4 nor 8 bytes wide",
    }
    return FaultReport(
        device=device,
        kind=FaultKind.BAD_PACKET,
        message=f"the packet at {pool.fault_packet:#x} is {reasons[Fault(pool.fault)]}",
        queue=queue,
        raw=tuple(decode(words.tolist())),
    )


def described(op: int, first: int, second: int, kernels: Mapping[int, str]) -> str:
    """Describe a packet in execution from its op and first two operands; "" for NOP and BARRIER.

    `kernels` maps the address of each loaded kernel to its name.
    """
    if op in {Op.NOP, Op.BARRIER}:
        return ""
    if op == Op.EXEC:
        name = kernels.get(first, "unknown")
        return f"runs kernel {name} at {first:#x}, arguments at {second:#x}"
    if op == Op.WAIT:
        return f"waits for the signal at {first:#x} to reach {second}, it is {Slot(first).value}"
    packet = LAYOUTS[Op(op)].__name__ if op in LAYOUTS else Packet.__name__
    return f"executes {packet} {op:#x} ({first:#x}, {second:#x})"
