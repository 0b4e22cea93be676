"""The protocol between a channel and the engine objects that are bound to its subchannels.

An engine runs methods of its class. Not here: fetching and host methods (`channel`, `host`). Next: `compute`
and `copy`, the two engines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from drivers.nv.emu.engines.pushbuffer import MethodCall
    from drivers.nv.emu.machine.reports import ChannelError


class Engine(Protocol):
    """What is bound to a subchannel."""

    @property
    def cls(self) -> int:
        """Its class."""
        ...

    def method(self, call: MethodCall) -> None:
        """Run one method of the class."""
        ...

    def left_over(self) -> ChannelError | None:
        """Return the error of settings made for a launch that never came."""
        ...
