"""Loops that users write keep nothing from one round to the next: objects, memory, plans, descriptors."""

from __future__ import annotations

import gc
import os
import random
import sys
from collections import Counter
from collections.abc import MutableMapping, MutableSequence, MutableSet
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import hcq
from frontend import Tensor, TinyJit, llm, nn
from frontend.device import Device
from frontend.evaluation.plan import PLANS, Plans
from frontend.llm.batching import RunningBatch
from hcq.errors import HcqError
from hcq.memory import Buffer
from tests.children import python
from tests.frontend.llm.test_language_models import write
from tests.frontend.llm.test_server import Client, submit_all
from tests.fuzz.endurance import census, open_and_close, train
from tests.limits import CHILD_S

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PACKAGES = ("hcq", "frontend", "compiler", "drivers", "emulator")
SLOTS = ("words of ", "arguments of ")
"""Labels of the memory of replay slots: a graph has more of them where the host is ahead of the device."""
CACHED = ("hcq.heap.Block", "hcq.layout.", "drivers.nv.layouts.", "drivers.amd.layouts.", "hcq.memory.",
          "hcq.replay.", "hcq.params.", "hcq.pushbuffer.", "hcq.inflight.", "hcq.kernargs.")  # fmt: skip
"""Classes of free memory, as much as was in use at once, of replay slots, of packets in limited caches."""
IDS = [(7 * i * i + 3 * i + 1) % 96 for i in range(512)]


def tables() -> Counter[str]:
    """Return the sizes of all containers at the level of modules, and of caches without a limit."""
    found: Counter[str] = Counter()
    for name, module in sorted(sys.modules.items()):
        if name.partition(".")[0] in PACKAGES and module is not None:
            for key, value in list(vars(module).items()):
                if hasattr(type(value), "cache_info"):
                    if value.cache_parameters()["maxsize"] is None:
                        found[f"{name}.{key}"] = value.cache_info().currsize
                elif isinstance(value, (MutableMapping, MutableSequence, MutableSet, Plans)):
                    found[f"{name}.{key}"] = len(value)
    return found


def buffers() -> Counter[tuple[str, int]]:
    """Return (label, bytes) of the open buffers that are not those of replay slots."""
    gc.collect()
    for device in (d for d in gc.get_objects() if d.__class__ is hcq.Device and not d.closed):
        device.sweep()
        for executable in tuple(device.retired.executables):
            executable.forget()
    gc.collect()
    each = [b for b in gc.get_objects() if b.__class__ is Buffer and b.root is None and not b.closed]
    return Counter((b.label, b.size) for b in each if not b.label.startswith(SLOTS))


def held() -> list[Counter[Any]]:
    """Return what the process holds now."""
    objects = Counter({n: count for n, count in census(*PACKAGES).items() if not n.startswith(CACHED)})
    descriptors, threads = (len(os.listdir(f"/proc/self/{name}")) for name in ("fd", "task"))  # noqa: PTH208 - only names
    return [buffers(), Counter(descriptors=descriptors, threads=threads, plans=len(PLANS)), tables(), objects]


def replayed(_: Path) -> None:
    """Capture a step anew, for a shape that an earlier round had, too."""
    train(random.Random(1), width=7)


def loaded(_: Path) -> None:
    """Train one epoch from a loader with threads, left half-way by a second one."""
    data = [(np.full(4, i, "f"), i) for i in range(16)]
    for x, _y in nn.data.DataLoader(data, 4, shuffle=True, seed=1, num_workers=2):
        (x * 2).sum().item()
    for _x in nn.data.DataLoader(data, 4, num_workers=2):
        break


def saved(folder: Path) -> None:
    """Save and load tensors and a captured function."""
    x = Tensor.arange(6).float().realize()
    nn.state.safe_save({"x": x}, str(folder / "x.safetensors"))
    nn.state.safe_load(str(folder / "x.safetensors"))["x"].numpy()
    step = TinyJit(lambda t: t * 2 + x)
    step(x), step(x)
    step.save(folder / "step")
    TinyJit.load(folder / "step")(x).numpy()


def refused(_: Path) -> None:
    """Make calls that are refused, before and while they are captured."""
    x = Tensor.arange(6).float().realize()
    step = TinyJit(lambda t: Tensor([t.sum().item()]))
    for call in (lambda: x @ x.reshape(2, 3), lambda: x.reshape(4), lambda: step(x), lambda: step(x),
                 lambda: Tensor([1]).to("gpu"), lambda: Device["cpu"].hcq.alloc(-1)):  # fmt: skip
        with suppress(HcqError, IndexError):
            call()


def opened(name: str, _: Path) -> None:
    """Open a device, run work on it, and close it."""
    with hcq.open(name, validate=False) as device:
        a = device.alloc(4096)
        device.compute.submit(device.compute.record().fill(a, 7)).wait()
        device.signal(shared=True) if name == "cpu" else None


def generated(folder: Path) -> None:
    """Generate after prompts of several chunks, alone, at once and in batches; leave and fail half-way."""
    model = llm.load(folder if (folder / "config.json").exists() else write(folder, "llama 2"))
    for size in (3, 17, 60, 150, 60, 150):
        assert len(list(model.generate(IDS[:size], max_tokens=4, stop=()))) == 4
    left, failed, both = (model.generate(IDS[:9], max_tokens=9, stop=()) for _ in range(3))
    next(left)
    left.close()
    next(failed)
    with pytest.raises(ArithmeticError):
        failed.throw(ArithmeticError())
    assert len(list(zip(both, model.generate(IDS[:20], max_tokens=3, stop=()), strict=False))) == 3
    both.close()
    for _ in range(2):
        list(model.generate_batch([IDS[:5], IDS[:20]], max_tokens=3, stop=()))
    model.logits(IDS[:21]).numpy()
    with RunningBatch(model, rows=2) as batch:
        ended, gone = Client(IDS[:7], 5), Client(IDS[:7], 200)
        submit_all(batch, [gone, ended])
        assert ended.done.wait(CHILD_S)
        batch.cancel(gone.request)


LOOPS: dict[str, Callable[[Path], None]] = {
    "captured steps": replayed, "loaders": loaded, "files": saved, "refused calls": refused,
    "generations": generated,
    "graphs": lambda _: open_and_close(),
    "cpu": partial(opened, "cpu"), "nv-emu": partial(opened, "nv-emu"), "amd-emu": partial(opened, "amd-emu"),
}  # fmt: skip


def kept(loop: Callable[[Path], None], folder: Path) -> None:
    """Fail if the process holds more after each of many rounds; what a thread begins may count once."""
    for _ in range(2):
        loop(folder)
    for _ in range(6):
        before = held()
        for _ in range(3):
            loop(folder)
        grown = [after - known for after, known in zip(held(), before, strict=True)]
        if not any(grown):
            return
    raise AssertionError(grown)


def longer_prompts(folder: Path) -> None:
    """The memory of the shorter cache, 64 KiB or 1 MiB a tensor, returns to the driver; its plans go."""
    model, device = llm.load(write(folder, "llama 2")), Device["cpu"].hcq
    plans = []
    for size, batch, slots in ((60, 1, 256), (300, 8, 512), (300, 1, 512)):
        for _ in range(2):
            model.forget()
            list(model.generate_batch([IDS[:size]] * batch, max_tokens=3, stop=()))
        caches = {n: buffers()["", n * 256] for n in (256, 512, 8 * 512)}
        assert caches == dict.fromkeys(caches, 0) | {batch * slots: 4}
        plans.append(len(PLANS))
        assert device.trim() < 4 << 20
    assert len(set(plans)) == 1


def arguments(_: Path) -> None:
    """A capture keeps no copy of its arguments."""
    x, at = Tensor(np.zeros(12_345, "f")).realize(), Tensor([3]).realize()
    step = TinyJit(lambda t: t[2:].sum() + t[at])
    for _ in range(3):
        step(x).numpy()
    assert buffers()["", 4 * 12_345] == 1


CHECKS: dict[str, Callable[[Path], None]] = {
    **{name: partial(kept, loop) for name, loop in LOOPS.items()},
    "longer prompts": longer_prompts, "arguments": arguments,
}  # fmt: skip
TOGETHER: dict[str, tuple[str, ...]] = {
    "generations": ("generations",),
    "longer prompts": ("longer prompts",),
    "host": ("arguments", "captured steps", "loaders", "files", "refused calls", "graphs", "cpu"),
    "emulated GPUs": ("nv-emu", "amd-emu"),
}
"""The checks of each process: it starts once for those that take less time than its start."""
PROGRAM = """
import sys
from pathlib import Path
from hcq.config import override
from tests.frontend.test_loops_keep_nothing import CHECKS
with override(validate=False):
    for name in sys.argv[2:]:
        print(name, flush=True)
        CHECKS[name](Path(sys.argv[1]))
"""


def test_every_check_runs() -> None:
    assert sorted(name for names in TOGETHER.values() for name in names) == sorted(CHECKS)


@pytest.mark.parametrize(
    "names", [pytest.param(n, marks=pytest.mark.slow) if n == "generations" else n for n in TOGETHER]
)
def test_a_process_holds_as_much_after_many_rounds(names: str, tmp_path: Path) -> None:
    """In processes of their own, as what other tests hold would count; the output ends with what grew."""
    python("-c", PROGRAM, tmp_path, *TOGETHER[names])
