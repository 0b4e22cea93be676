"""The NVIDIA driver: it lists the GPUs and opens one, on Linux or on an emulated machine.

Not here: initialising a GPU (`device`), the quirks that a device's name can set (`quirks`). Next:
`device`; the contract is `hcq.driver.Driver`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from drivers.kernel import Kernel
from drivers.shared.driver import Linux, absent, opens
from hcq.config import config
from hcq.driver import DeviceInfo, Tool
from hcq.errors import HcqError

if TYPE_CHECKING:  # heavy: a process without such a GPU loads none of it
    from drivers.nv.device import NvDevice
    from drivers.nv.quirks import NvQuirks
    from drivers.nv.rm import Card

_ASSEMBLER = Tool(
    "PTX assembler",
    "compiler.targets.nvptx.assembler",
    "available",
    cure="pip install 'nvidia-nvjitlink>=13.0,<14'",
)
_CONTROL_NODE = "/dev/nvidiactl"
"""The device node of the resource manager (`drivers.nv.layouts.rm`)."""


class NvDriver:
    """A driver with the given name; see `hcq.driver.Driver`.

    The variant is the part of a device's name after the colon that is not a number. `make_kernel` receives
    it. On Linux it sets quirks instead: "nv:stack=low" (`quirks.parse`). `hint` returns the hint of the
    error for an unknown GPU number, or "" for none. `emulated`: see `hcq.driver.Driver`.
    """

    def __init__(
        self,
        name: str = "nv",
        make_kernel: Callable[[str | None], Kernel] | None = None,
        *,
        hint: Callable[[], str] = str,
        emulated: bool = False,
    ) -> None:
        self.name = name
        """The name by which devices are opened."""
        self.make_kernel = make_kernel or Linux()
        self._hint = hint
        self.emulated = emulated
        self.tools = (_ASSEMBLER,)

    def enumerate(self) -> list[DeviceInfo]:
        """Return the GPUs that can be opened now; empty if there is no kernel driver or no supported GPU.

        A GPU that cannot be opened is left out, without its reason; `open` raises it.
        """
        kernel = self.make_kernel(None)
        if not opens(kernel, _CONTROL_NODE):
            return []
        from drivers.nv.rm import Rm  # noqa: PLC0415 - the same
        from drivers.nv.topology import open_objects, query_gpu  # noqa: PLC0415 - the same

        found: list[DeviceInfo] = []
        for index, card in enumerate(self._cards(kernel)):
            with contextlib.suppress(HcqError), contextlib.closing(Rm(kernel)) as rm:
                rm.open_gpu(card.minor)
                found.append(query_gpu(rm, open_objects(rm, card)).info(self.name, index))
        return found

    def _cards(self, kernel: Kernel) -> list[Card]:
        from drivers.nv.rm import Rm  # noqa: PLC0415 - heavy

        with contextlib.suppress(HcqError), contextlib.closing(Rm(kernel)) as rm:
            return rm.cards()
        return []

    def open(self, index: int, variant: str | None, *, choices: NvQuirks | None = None) -> NvDevice:
        """Open GPU `index`; the caller closes the result. `choices` replaces the variant's quirks.

        Raises `UsageError` if there is no such GPU or the variant is unknown, `UnsupportedError`,
        `DriverError` or `BringUpError` with a hint if the GPU cannot be opened.
        """
        from drivers.nv.device import NvDevice  # noqa: PLC0415 - heavy
        from drivers.nv.quirks import DEFAULT, parse  # noqa: PLC0415 - heavy
        from drivers.nv.rm import Rm  # noqa: PLC0415 - heavy

        if choices is None:
            choices = (
                parse(variant) if variant is not None and isinstance(self.make_kernel, Linux) else DEFAULT
            )
        kernel = self.make_kernel(variant)
        with contextlib.closing(Rm(kernel)) as rm:
            cards = rm.cards()
        if not 0 <= index < len(cards):
            hint = (
                self._hint() if cards else "`nvidia-smi -L` lists the GPUs; a container needs them passed in"
            )
            raise absent(f"{self.name}:{index}", "the kernel driver", len(cards), hint)
        return NvDevice(
            kernel,
            cards[index],
            driver=self.name,
            index=index,
            choices=choices,
            ring_bytes=config().ring_bytes,
            emulated=self.emulated,
        )
