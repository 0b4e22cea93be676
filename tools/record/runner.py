"""Running forms on a device in shards, and writing their results to a journal.

A shard whose kernels fail is halved until the failing form is alone; its error is recorded. A form that was
running when the last process ended runs first in the next process, alone. If it ends that process, too, that
is its error. After a failure the device is closed and opened again.

Not here: the kernels of forms (`vendors`). Next: `recording`, the files.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

import hcq
from hcq.errors import HcqError, UsageError
from tools.hardware.stage import commit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from tools.record.forms import Form, Kernel
    from tools.record.recording import Journal
    from tools.record.vendors import Vendor

SHARD: Final = 64
"""The most forms of one shard."""
_HOST: Final = hcq.BufferSpec(place=hcq.Place.HOST, host_visible=True, coherent=True)
_LEAST: Final = 256
"""The least bytes of a buffer."""
TIMEOUT_S: Final = 5.0
"""The time limit, in seconds, of the kernels of one shard on a real GPU."""


def in_order(forms: Iterable[Form]) -> list[Form]:
    """Return forms in the order of recording: by `doubt`, the highest first, then by group and name.

    Raises `ValueError` if two forms have the same name.
    """
    found = sorted(forms, key=lambda one: (-one.doubt, one.group, one.name))
    names = Counter(one.name for one in found)
    if len(names) < len(found):
        raise ValueError(f"two forms are called {names.most_common(1)[0][0]}")
    return found


def shards(forms: Sequence[Form], size: int = SHARD) -> list[list[Form]]:
    """Return forms cut into shards, in the order of recording."""
    ordered = in_order(forms)
    return [ordered[at : at + size] for at in range(0, len(ordered), size)]


def head_of(info: hcq.DeviceInfo, version: str, assembler: str) -> dict[str, str]:
    """Return the head of a recording; `version` is the kernel driver's, `assembler` what made the kernels."""
    emulated = info.driver.endswith("-emu")
    return {
        "device": info.name,
        "arch": info.arch,
        "driver": f"{info.driver}, emulated" if emulated else f"{info.driver} {version}",
        "commit": commit()[:12],
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "tool": assembler,
    }


@dataclass(slots=True)
class Opened:
    """A device that is opened on demand, and again after `close`. A context manager."""

    name: str
    device: hcq.Device | None = None

    def get(self) -> hcq.Device:
        """Return the device, opened if it is not. Raises as `hcq.open` does."""
        if self.device is None:
            self.device = hcq.open(self.name)
        return self.device

    def close(self) -> None:
        """Close the device; an `HcqError` of a device that has failed is not raised again."""
        device, self.device = self.device, None
        if device is not None:
            with suppress(HcqError):
                device.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def launched(device: hcq.Device, kernels: Sequence[Kernel], *, timeout_s: float) -> list[bytes]:
    """Run kernels in one submission; return the bytes that each wrote to `out`, which begin as zeros.

    Raises `SignalTimeout`, and `DeviceFault` if a kernel fails.
    """
    copies, compute = device.copies[0], device.compute
    ins = [device.alloc(max(_LEAST, len(one.inputs))) for one in kernels]
    outs = [device.alloc(max(_LEAST, one.out_bytes)) for one in kernels]
    host = [device.alloc(max(_LEAST, len(one.inputs), one.out_bytes), _HOST) for one in kernels]
    up, run, down = copies.record(), compute.record(label="record"), copies.record()
    for kernel, source, out, staging in zip(kernels, ins, outs, host, strict=True):
        staging.host()[: len(kernel.inputs)] = kernel.inputs
        up.copy(source, staging, max(_LEAST, len(kernel.inputs))).fill(out, 0)
        program, shape = device.load(kernel.image), kernel.launch
        cluster = (shape.cluster, 1, 1) if shape.cluster > 1 else None
        run.exec(
            program, program.args(out, source), groups=shape.groups, threads=shape.threads,
            cluster=cluster,
        )  # fmt: skip
        down.copy(staging, out, max(_LEAST, kernel.out_bytes))
    ready = copies.submit(up)
    done = compute.submit(run, after=[ready])
    copies.submit(down, after=[done]).wait(timeout_s=timeout_s)
    return [bytes(one.host()[: kernel.out_bytes]) for one, kernel in zip(host, kernels, strict=True)]


@dataclass(slots=True)
class Recorder:
    """Records forms on one device into a journal."""

    vendor: Vendor
    opened: Opened
    journal: Journal
    folder: Path | None = None
    """Folder of prepared kernels, if there is one."""
    timeout_s: float = TIMEOUT_S
    """The time limit of the kernels of one shard."""
    report: Callable[[str], object] = sys.stderr.write

    def record(self, parts: Sequence[Sequence[Form]], *, limit_s: float = float("inf")) -> bool:
        """Record the forms of some shards that the journal lacks; return whether all were recorded in time.

        No shard begins after `limit_s` seconds. Errors of forms go into the journal.
        """
        end, recording = time.monotonic() + limit_s, self.journal.recording
        everything = {form.name: form for part in parts for form in part}
        ended = [everything[name] for name in recording.unfinished() if name in everything]
        alone = len(recording.begun) == 1
        for form in ended:
            if alone:
                self.journal.error(form.name, form.key(), "the process ended while it ran, alone")
            else:
                self._run([form])
        for number, part in enumerate(parts, 1):
            left = [form for form in part if not recording.known(form.name, form.key())]
            if not left:
                continue
            if time.monotonic() >= end:
                return False
            begin = time.monotonic()
            self._run(left)
            failed = [form.name for form in left if form.name in recording.errors]
            self.report(
                f"shard {number} of {len(parts)}: {len(left)} forms, {time.monotonic() - begin:.1f} s"
                + (f", no results of {', '.join(failed)}" if failed else "")
                + "\n"
            )
        return True

    def _run(self, forms: Sequence[Form]) -> None:
        self.journal.begin(form.name for form in forms)
        try:
            found = self._results(forms)
        except (HcqError, KeyError) as error:
            self.opened.close()
            if len(forms) == 1:
                self.journal.error(forms[0].name, forms[0].key(), _shown(error))
                return
            middle = len(forms) // 2
            self._run(forms[:middle])
            self._run(forms[middle:])
            return
        for form in forms:
            self.journal.result(form.name, form.key(), found[form.name])

    def _results(self, forms: Sequence[Form]) -> dict[str, bytes]:
        device = self.opened.get()
        kernels = self.vendor.kernels(forms, device.info.arch, self.folder)
        outs = launched(device, kernels, timeout_s=self.timeout_s)
        sizes = {form.name: form.result_bytes for form in forms}
        found = {
            name: out[at : at + sizes[name]]
            for kernel, out in zip(kernels, outs, strict=True)
            for name, at in kernel.at.items()
        }
        if found.keys() != sizes.keys():
            missing = ", ".join(sizes.keys() - found.keys())
            raise UsageError(f"{self.vendor.name} made no kernel for {missing}")
        return found


def _shown(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:400]}"
