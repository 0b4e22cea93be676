"""Random submissions that the host holds, some of which are cancelled, against the sequential execution.

Each waits for the futures of earlier ones that use the same words, and perhaps for a gate that the host
opens. A thread cancels some while the gates open. Memory must be that of the ones that ran, in sequence; one
that follows a cancelled one must be cancelled, and every other one must run.

Not here: the random commands (`stress`).
"""

from __future__ import annotations

import random
import threading
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Final

import numpy as np

from tests.fuzz.queue_programs import WORDS, apply
from tests.fuzz.stress import BUFFERS, WAIT_S, Stress

if TYPE_CHECKING:
    from concurrent.futures import Future

    import hcq
    from tests.fuzz.queue_kernels import Stage

SUBMISSIONS: Final = 40
GATES: Final = 4


def ran(seed: int, stage: Stage) -> int:
    """Run one seed and return how many submissions ran; raise `AssertionError` for a difference."""
    r, stress = random.Random(seed), Stress(seed, stage, SUBMISSIONS, 0)  # noqa: S311 - programs, not secrets
    stress.free_rate = 0.0
    gates = [stage.devices[0].signal(host_set=True) for _ in range(GATES)]
    futures: list[Future[hcq.Point]] = []
    chosen, answers = [], dict[int, bool]()
    while (one := stress.choose()) is not None:
        after: list[hcq.Point | Future[hcq.Point]] = [futures[n] for n in one.follows]
        after += [r.choice(gates).at(1)] if r.random() < 0.4 or not after else []
        r.shuffle(after)
        futures.append(one.queue.submit_later(stress.record(one), after=after))
        chosen.append(one)
    unlucky = r.sample(range(SUBMISSIONS), r.randrange(8))

    def cancel() -> None:
        for number in unlucky:
            answers[number] = futures[number].cancel()

    thread = threading.Thread(target=cancel, name="cancels")
    if r.random() < 0.3:
        cancel()
    thread.start()
    for gate in r.sample(gates, GATES):
        gate.value = 1
    thread.join()
    memory = [np.zeros(WORDS, np.uint32) for _ in range(BUFFERS)]
    for number, (one, future) in enumerate(zip(chosen, futures, strict=True)):
        try:
            assert future.result(timeout=WAIT_S).passed()
            apply(one.commands, memory)
        except CancelledError:
            follows = any(futures[n].cancelled() for n in one.follows)
            assert follows or answers.get(number), f"seed {seed}: {number} was cancelled by nobody"
        else:
            assert not answers.get(number), f"seed {seed}: {number} was cancelled, and ran"
            assert not any(futures[n].cancelled() for n in one.follows), f"seed {seed}: {number} ran"
    for number, (buffer, wanted) in enumerate(zip(stress.buffers, memory, strict=True)):
        found = np.frombuffer(buffer.host(), np.uint32)
        assert np.array_equal(found, wanted), f"seed {seed}, buffer {number}: {found}, not {wanted}"
        buffer.close()
    return sum(not future.cancelled() for future in futures)
