"""Calls of the queue layer with arguments of any class: each must work, or raise an error of the project.

A call is drawn from a table, its arguments from a list of values: numbers of every size and class, texts,
containers, and objects of the layer, also closed ones and those of another device. No call waits for what
nothing reaches. After each round the device must still do its work.

Not here: programs that are legal (`queue_programs`), faults (`queue_faults`). Next: `queues`, the command.
"""

from __future__ import annotations

import random
import traceback
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

import hcq
from hcq.params import Expr, Param
from tests.conformance.kernels import image

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fuzz.queue_kernels import Stage

CALLS: Final = 40
"""Calls of one round."""
_ONE: Final = (1, 1, 1)
PLAIN: Final[tuple[Any, ...]] = (
    *(0, 1, -1, 3, 4, 8, 64, 65, 255, 2**31, 2**32 - 1, 2**32, 2**63 - 1, 2**63, 2**64 - 1, 2**64, 10**30),
    *(True, None, 0.0, 1.5, float("nan"), float("inf"), 1e300, 1j, "", "x", "0", b"", b"12345678", ...),
    *((), [], {}, set(), (1, 1, 1), (1,), [1, 2, 3], ("x", 1, 1), {"x": 1}, range(3), int, print),
    *(np.int64(8), np.uint8(3), np.float32(1.5), np.bool_(1), np.zeros(2), np.zeros(0), np.array(4)),
)


class Scene:
    """The objects that calls use, and the values that they get."""

    def __init__(self, stage: Stage, seed: int) -> None:
        self.r = random.Random(seed)  # noqa: S311 - calls, not secrets
        self.device, self.queue = stage.devices[0], stage.devices[0].compute
        self.mix, self.image = stage.mix[self.device], image("mix", self.device.info)
        self.a, self.b = self.device.alloc(256, label="a"), self.device.alloc(256, label="b")
        self.queue.submit(self.queue.record().fill(self.a, 1).fill(self.b, 2)).wait()
        closed = self.device.alloc(64, label="closed")
        closed.close()
        self.signal = self.device.signal(host_set=True)
        self.point, self.stamp = self.queue.submit(self.queue.record()), self.device.stamp()
        self.n, self.p = Param("n", bits=32), Param("p")
        self.graph = hcq.Graph()
        term = self.graph.param("term", bits=32)
        self.graph.add(self.queue, self.queue.record().fill(self.a, term))
        self.executable = self.graph.compile()
        with hcq.open(self.device.info.driver) as other:
            lost = other.alloc(64, label="of a closed device")
            objects = (
                *(self.a, self.b, self.a.view(16, 16), closed, lost, self.signal, self.signal.at(0)),
                *(self.point, self.stamp, self.n, self.p, self.n + 1, self.p + 8, term, self.queue,
                  self.device),
                *(other, self.mix, self.image, self.mix.args(self.a, self.b, 1), self.queue.record(),
                  self.graph),
                *(self.executable, hcq.BufferSpec(), hcq.Place.HOST, hcq.QueueKind.COMPUTE),
            )  # fmt: skip
        self.values: tuple[Any, ...] = (*PLAIN, *objects)

    def __call__(self) -> Any:
        """Return a value: any, or one that is right in many places."""
        if self.r.random() < 0.3:
            return self.r.choice((self.a, self.b, self.n, self.p, self.signal, self.point, 4, 1, 16))
        return self.r.choice(self.values)

    def record(self) -> Any:
        """Return an empty command buffer, of any type."""
        return self.queue.record()

    def submit(self, *given: Any, **names: Any) -> None:
        """Submit, and wait."""
        self.queue.submit(*given, **names).wait(timeout_s=_WAIT_S)


_WAIT_S: Final = 60.0
_FIELDS: Final = (
    *("name", "arch", "code", "args", "kernarg_size"),
    *("shared_bytes", "scratch_bytes", "max_threads", "group_ns"),
)


def _made(s: Scene) -> object:
    bits, size = s(), s()
    return Param(s(), bits=bits, size=size)


def _load(s: Scene) -> object:
    return s.device.load(replace(s.image, **{s.r.choice(_FIELDS): s()}))


def _slot(s: Scene) -> object:
    slot = replace(s.image.args[0], **{s.r.choice(("name", "kind", "offset", "size", "access")): s()})
    return s.device.load(replace(s.image, args=(slot, *s.image.args[1:])))


TABLE: Final[tuple[Callable[[Any], object], ...]] = (
    lambda s: s.record().copy(s(), s()),
    lambda s: s.record().copy(s(), s(), s()),
    lambda s: s.record().fill(s(), s()),
    lambda s: s.record().fill(s(), s(), s()),
    lambda s: s.record().write(s(), s()),
    lambda s: s.record().write(s(), s(), bits=s()),
    lambda s: s.record().wait(s()),
    lambda s: s.record().wait(s(), s()),
    lambda s: s.record().signal(s()),
    lambda s: s.record().signal(s(), s()),
    lambda s: s.record().timestamp(s()),
    lambda s: s.record().barrier(s()),
    lambda s: s.record().add(s()),
    lambda s: s.record().exec(s(), s(), groups=s(), threads=s()),
    lambda s: s.record().exec(s.mix, s(), groups=_ONE, threads=_ONE),
    lambda s: s.record().exec(s.mix, s.mix.args(s.a, s.b, 1), groups=s(), threads=s()),
    lambda s: s.record().exec(s.mix, s.mix.args(s.a, s.b, 1), groups=(s(), s(), 1), threads=(1, 1, s())),
    lambda s: s.mix.args(s(), s(), s()),
    lambda s: s.mix.args(s.a, s.b, s()),
    lambda s: s.mix.args(*[s() for _ in range(s.r.randrange(5))]),
    lambda s: s.submit(s()),
    lambda s: s.submit(s.record(), after=s()),
    lambda s: s.submit(s.record(), after=[s()]),
    lambda s: s.submit(s.record(), values=s()),
    lambda s: s.submit(s.record(), timeout_s=s()),
    lambda s: s.submit(s.record().fill(s.a, s.n), values={s.n: s()}),
    lambda s: s.submit(s.record().fill(s.p, 1, 16), values={s.p: s()}),
    lambda s: s.submit(s.record().copy(s.a, s.b, s.n), values={s.n: s()}),
    lambda s: s.submit(s.record().fill(s.p + s(), s.n, s()), values={s.n: s(), s.p: s()}),
    lambda s: s.queue.submit_later(s(), values=s()).cancel(),
    lambda s: s.queue.submit_later(s.record(), after=s()).cancel(),
    lambda s: s.queue.submit_later(s.record(), after=[s()]).cancel(),
    lambda s: s.point.wait(timeout_s=s()),
    lambda s: s.queue.sync(timeout_s=s()),
    lambda s: s.device.sync(timeout_s=s()),
    lambda s: s.signal.at(s()).done(),
    lambda s: s.signal.wait(s(), timeout_s=0),
    lambda s: setattr(s.signal, "value", s()),
    lambda s: s.device.signal(s()),
    lambda s: s.a.view(s()),
    lambda s: s.a.view(s(), s()),
    lambda s: s.a.map_to(s()),
    lambda s: s.a.visible_to(s()),
    lambda s: s.device.alloc(64, s()),
    lambda s: s.device.alloc(s.r.choice((-1, 0, 64.0, 2**64, 2**70, "x", None, s.n, (), np.float32(2)))),
    lambda s: s.device.alloc(64, hcq.BufferSpec(**{s.r.choice(("place", "align", "upload")): s()})),
    lambda s: s.device.clock().to_ns(s()),
    lambda s: s.device.load(s()),
    _load,
    _slot,
    _made,
    lambda s: s.n + s(),
    lambda s: s.n >> s(),
    lambda s: Expr(s(), s(), s()).evaluate(s()),
    lambda s: (s.n + 1).evaluate(s()),
    lambda s: hcq.Graph().param(s(), bits=s()),
    lambda s: hcq.Graph().add(s(), s()),
    lambda s: hcq.Graph().add(s.queue, s.record(), after=s()),
    lambda s: s.graph.compile(copies=s(), limit=s.r.choice((1, 3, -1, 1.5, "x", None))),
    lambda s: s.graph.compile(copies=1, limit=s()),
    lambda s: s.executable.replay(s()),
    lambda s: s.executable.replay([s()]),
    lambda s: s.executable.replay([7], after=s()),
    lambda s: s.executable.submit(s()),
    lambda s: s.executable.submit({s.r.choice((s.n, s.p, 1, "x", *s.graph.params)): s()}),
    lambda s: hcq.open(s()),
)


def unexpected(seed: int, stage: Stage) -> str:
    """Make the calls of a seed; return the errors that are not the project's as text, or ""."""
    scene, found = Scene(stage, seed), []
    for _ in range(CALLS):
        number = scene.r.randrange(len(TABLE))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                made = TABLE[number](scene)
                if isinstance(made, hcq.Device):
                    made.close()
        except hcq.HcqError:
            continue
        except Exception:  # noqa: BLE001 - any other error is a finding
            found.append(f"call {number} of the table:\n{traceback.format_exc(limit=-4)}")
    scene.submit(scene.record().fill(scene.b, 9).copy(scene.a, scene.b, 16))
    return "".join(found)
