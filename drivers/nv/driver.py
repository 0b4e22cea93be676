"""The NVIDIA driver: it lists the GPUs and opens one, on Linux or on an emulated machine.

Not here: initialising a GPU (`device`), the quirks that a device's name can set (`quirks`). Next:
`device`; the contract is `hcq.driver.Driver`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from drivers.kernel import Kernel
from drivers.nv.device import NvDevice
from drivers.nv.quirks import NvQuirks
from drivers.nv.rm import Card
from hcq.config import config
from hcq.driver import DeviceInfo, Tool
from hcq.errors import HcqError, UsageError

_ASSEMBLER = Tool(
    "PTX assembler",
    "compiler.targets.nvptx.assembler",
    "available",
    cure="pip install 'nvidia-nvjitlink>=13.0,<14'",
)
_CONTROL_NODE = "/dev/nvidiactl"
"""The device node of the resource manager (`drivers.nv.layouts.rm`)."""


def linux(variant: str | None) -> Kernel:
    """Return the Linux kernel of this machine; the variant has no effect."""
    from drivers.kernel import LinuxKernel  # noqa: PLC0415 - opened on demand

    del variant
    return LinuxKernel()


class NvDriver:
    """A driver with the given name; see `hcq.driver.Driver`.

    The variant is the part of a device's name after the colon that is not a number. `make_kernel` receives
    it. With `linux` it sets quirks instead: "nv:stack=low" (`quirks.parse`). `hint` returns the hint of the
    error for an unknown GPU number, or "" for none. `emulated`: see `hcq.driver.Driver`.
    """

    def __init__(
        self,
        name: str = "nv",
        make_kernel: Callable[[str | None], Kernel] = linux,
        *,
        hint: Callable[[], str] = str,
        emulated: bool = False,
    ) -> None:
        self._name = name
        self.make_kernel = make_kernel
        self._hint = hint
        self.emulated = emulated
        self.tools = (_ASSEMBLER,)

    @property
    def name(self) -> str:
        """The name by which devices are opened."""
        return self._name

    def enumerate(self) -> list[DeviceInfo]:
        """Return the GPUs that can be opened now; empty if there is no kernel driver or no supported GPU.

        A GPU that cannot be opened is left out, without its reason; `open` raises it.
        """
        kernel = self.make_kernel(None)
        try:
            # Without the control node the heavy modules are not imported; "auto" checks at every open.
            kernel.close(kernel.open(_CONTROL_NODE))
        except HcqError:
            return []
        from drivers.nv.info import device_info  # noqa: PLC0415 - heavy, and not needed without hardware
        from drivers.nv.rm import Rm  # noqa: PLC0415 - the same
        from drivers.nv.topology import open_objects, query_gpu  # noqa: PLC0415 - the same

        found: list[DeviceInfo] = []
        for index, card in enumerate(self._cards(kernel)):
            with contextlib.suppress(HcqError), contextlib.closing(Rm(kernel)) as rm:
                rm.open_gpu(card.minor)
                found.append(device_info(self._name, index, query_gpu(rm, open_objects(rm, card))))
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
            choices = parse(variant) if variant is not None and self.make_kernel is linux else DEFAULT
        kernel = self.make_kernel(variant)
        with contextlib.closing(Rm(kernel)) as rm:
            cards = rm.cards()
        if not 0 <= index < len(cards):
            raise UsageError(self._absent(index, len(cards)))
        return NvDevice(
            kernel,
            cards[index],
            driver=self._name,
            index=index,
            choices=choices,
            ring_bytes=config().ring_bytes,
            emulated=self.emulated,
        )

    def _absent(self, index: int, count: int) -> str:
        known = {0: "no GPU", 1: "one GPU, number 0"}.get(count, f"{count} GPUs, numbers 0 to {count - 1}")
        hint = self._hint() if count else "`nvidia-smi -L` lists the GPUs; a container needs them passed in"
        text = f"{self._name}:{index} does not exist: the kernel driver lists {known}"
        return f"{text}\nhint: {hint}" if hint else text
