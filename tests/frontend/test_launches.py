"""Barriers between the kernels of an executable."""

from __future__ import annotations

from frontend import Device
from frontend.evaluation.launch import KernelLaunch, assemble
from hcq.commands import Barrier, Copy, Scope

SIZE = 64


def copy(target: str, source: str) -> KernelLaunch:
    return KernelLaunch(None, (1, 1, 1), (1, 1, 1), (target, source), (SIZE, SIZE), (0,))


def test_barriers_between_kernels_of_one_device_are_for_that_device():
    """Caches are not written back for host or peers, which wait for the signal at the end."""
    kernels = [copy("middle", "a"), copy("out", "middle"), copy("again", "a")]
    params = [("a", SIZE), ("out", SIZE), ("again", SIZE)]
    executable = assemble(Device["cpu"], kernels, params, {}, label="copies")
    (segment,) = executable.segments
    assert [type(command) for command in segment.commands] == [Copy, Barrier, Copy, Copy]
    assert [one.scope for one in segment.commands if isinstance(one, Barrier)] == [Scope.DEVICE]
    executable.close()
