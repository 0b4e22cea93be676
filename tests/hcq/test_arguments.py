"""Memory for kernel arguments: taken in turn, used again, never while in flight."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hcq.kernarg_ring import RING_BYTES, ArgumentRing
from tests.hcq.fake import ADD, ONE, STORE, FakeDevice

if TYPE_CHECKING:
    from hcq.device import Device


BLOCK = 8192
"""Bytes of arguments a launch: few launches then fill the ring."""


def test_argument_memory_is_reused_after_a_wait(device: Device, fake: FakeDevice):
    program, out = device.load(replace(ADD, kernarg_size=BLOCK)), device.alloc(256)
    a = device.alloc(256)
    queue = device.compute
    pages = len(fake.memory)
    commands = queue.record()
    for _ in range(5):
        commands.exec(program, program.args(out, a, a), groups=ONE, threads=ONE).barrier()
    for _ in range(3 * RING_BYTES // (BLOCK * 5)):
        queue.submit(commands)
    queue.sync()
    assert len(fake.memory) <= pages + 1


def test_a_submission_may_need_more_arguments_than_the_ring_has(device: Device, fake: FakeDevice):
    program, a = device.load(replace(STORE, kernarg_size=BLOCK)), device.alloc(16)
    count = RING_BYTES // BLOCK + 10
    outs = device.alloc(16 * count)
    for _ in range(2):
        commands = device.compute.record()
        for i in range(count):
            args = program.args(outs.view(16 * i, 16), i, 0.0, i)
            commands.exec(program, args, groups=ONE, threads=ONE)
        device.compute.submit(commands)
        device.compute.submit(
            device.compute.record().exec(program, program.args(a, 1, 0, 2), groups=ONE, threads=ONE)
        )
    device.sync()
    words = outs.host().cast("I")
    assert all(words[4 * i] == i for i in range(count))
    assert a.host()[0] == 1


def test_the_argument_ring_never_reuses_memory_in_flight(device: Device):
    """A small ring, submissions of random sizes, retirement at random: no live block is overwritten."""
    import random

    from hcq.pushbuffer import PushBuffer

    rnd = random.Random(5)
    live: list[tuple[int, list[tuple[int, int]]]] = []

    def retire() -> bool:
        if not live:
            return False
        ring.tail, _ = live.pop(0)[0], None
        return True

    ring = ArgumentRing(device, retire, label="test", size=4096)
    pushbuffer = PushBuffer(64, ring)
    ring.start(pushbuffer)
    for step in range(3000):
        blocks = []
        for _ in range(rnd.randint(1, 4)):
            size = 8 * rnd.randint(1, 100)
            va = pushbuffer.place([step] * (size // 8), align=rnd.choice([8, 64, 256]))
            for _, others in live:
                assert all(va + size <= start or end <= va for start, end in others)
            assert all(va + size <= start or end <= va for start, end in blocks)
            blocks.append((va, va + size))
        ring.finish(pushbuffer)
        live.append((pushbuffer.at, blocks))
        while live and rnd.random() < 0.5:
            retire()
