"""Callbacks, futures and coroutines of points, over the queues of a device."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from tests.conformance.conftest import Lab, read
from tests.limits import HANG_S

if TYPE_CHECKING:
    from hcq.signal import Point


def test_callbacks_of_two_queues_see_the_effects_of_their_work(lab: Lab) -> None:
    out, copies = lab.words([1]), lab.words(1)
    seen = list[tuple[str, list[int]]]()
    gate = lab.device.signal(host_set=True)
    first = lab.queue.submit(lab.run(lab.queue.record().wait(gate, 1), "affine", out, 3, 4))
    second = lab.copies.submit(lab.copies.record().copy(copies, out), after=[first])
    second.add_done_callback(lambda _: seen.append(("copy", read(copies))))
    first.add_done_callback(lambda _: seen.append(("kernel", read(out))))
    assert not seen
    gate.value = 1
    second.future().result(timeout=HANG_S)
    end = time.monotonic() + HANG_S
    while len(seen) < 2 and time.monotonic() < end:
        time.sleep(0.001)
    assert sorted(seen) == [("copy", [7]), ("kernel", [7])]


def test_a_callback_submits_the_next_work(lab: Lab) -> None:
    out = lab.words([0])
    left = [4]
    last = lab.device.signal(host_set=True)

    def next_one(_: Point) -> None:
        left[0] -= 1
        if left[0]:
            lab.queue.submit(lab.run(lab.queue.record(), "affine", out, 10, left[0])).add_done_callback(
                next_one
            )
        else:
            last.value = 1

    lab.queue.submit(lab.run(lab.queue.record(), "affine", out, 10, left[0])).add_done_callback(next_one)
    last.wait(1, timeout_s=HANG_S)
    assert read(out) == [4321]


def test_coroutines_await_points(lab: Lab) -> None:
    out = [lab.words([k]) for k in range(8)]

    async def run(k: int) -> int:
        await lab.queue.submit(lab.run(lab.queue.record(), "affine", out[k], 2, 1))
        return read(out[k])[0]

    async def everything() -> list[int]:
        return await asyncio.gather(*[run(k) for k in range(8)])

    assert asyncio.run(everything()) == [2 * k + 1 for k in range(8)]
