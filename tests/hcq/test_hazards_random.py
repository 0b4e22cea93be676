"""Random submissions: the validation layer refuses exactly the unordered conflicts, and what it lets pass is
right."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from hcq.errors import UsageError
from hcq.registry import wrap
from tests.hcq.fake import FakeDevice

if TYPE_CHECKING:
    from hcq.commandbuffer import CommandBuffer
    from hcq.device import Device
    from hcq.memory import Buffer

PARTS = 6
"""Pieces of 8 bytes that the one buffer under test has."""

SUBMISSION = st.tuples(
    st.integers(0, 2),  # queue
    st.lists(st.tuples(st.integers(0, PARTS - 1), st.integers(0, PARTS - 1), st.integers(1, 2)), max_size=2),
    st.sets(st.integers(0, 11), max_size=2),  # after: places in the list of submissions
)


def overlap(a: tuple[int, int], b: tuple[int, int]) -> bool:
    return a[0] < b[1] and b[0] < a[1]


def touched(copies: list[tuple[int, int, int]]) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Return the ranges read and written by copies (to, from, parts)."""
    return [(b, b + n) for _, b, n in copies], [(a, a + n) for a, _, n in copies]


def legal(copies: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    return [
        (a, b, n) for a, b, n in copies
        if max(a, b) + n <= PARTS and not overlap((a, a + n), (b, b + n))
    ]  # fmt: skip


def record(device: Device, kind: int, buffer: Buffer, copies: list[tuple[int, int, int]]) -> CommandBuffer:
    commands = device.queues[kind].record()
    for a, b, n in copies:
        commands.copy(buffer.view(8 * a, 8 * n), buffer.view(8 * b, 8 * n))
    return commands


@given(st.lists(SUBMISSION, max_size=12), st.integers(0, 1 << 30))
def test_exactly_the_unordered_conflicts_are_refused_and_the_rest_gives_the_sequential_result(
    plan: list[tuple[int, list[tuple[int, int, int]], set[int]]], seed: int
):
    fake = FakeDevice()
    fake.hold = True
    with wrap(fake, validate=True, seed=1) as device:
        buffer = device.alloc(8 * PARTS)
        state = [bytes([65 + i]) * 8 for i in range(PARTS)]
        buffer.host()[:] = b"".join(state)
        before: list[set[int]] = []  # of each accepted submission: those that it comes after, itself included
        accepted: list[tuple[int, list[tuple[int, int, int]]]] = []
        points = []
        for queue, raw, after in plan:
            copies = legal(raw)
            mine = {i for i, (other, _) in enumerate(accepted) if other == queue}
            mine |= {i for i in after if i < len(accepted)}
            closed = set().union(*(before[i] for i in mine)) if mine else set()
            reads, writes = touched(copies)
            conflict = False
            for i, (_, others) in enumerate(accepted):
                other_reads, other_writes = touched(others)
                meets = any(overlap(w, o) for w in writes for o in other_reads + other_writes)
                meets = meets or any(overlap(r, o) for r in reads for o in other_writes)
                conflict = conflict or (meets and i not in closed)
            try:
                point = device.queues[queue].submit(
                    record(device, queue, buffer, copies), after=[points[i] for i in after if i < len(points)]
                )
            except UsageError as error:
                if not conflict or "hazard" not in str(error):
                    raise
                continue
            assert not conflict
            points.append(point)
            before.append(closed | {len(accepted)})
            accepted.append((queue, copies))
            for a, b, n in copies:
                state[a : a + n] = state[b : b + n]
        rnd = random.Random(seed)
        while any(ring.packets for ring in fake.rings):
            rnd.choice(fake.rings).step()
        assert bytes(buffer.host()) == b"".join(state)
        fake.hold = False
