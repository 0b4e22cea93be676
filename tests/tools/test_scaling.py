"""The model of scaling: bytes and buckets are those of the frontend, a row is as computed by hand."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest

from frontend import Device, Tensor
from frontend.distributed import parts
from frontend.distributed.captured import MOST_BUCKETS
from frontend.distributed.transport import QUEUED
from tests.frontend.meshes import CPUS, closed, four_cpus
from tools.scaling import DEVICES, Link, buckets, main, moved, scaled

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["closed", "four_cpus"]


@pytest.mark.parametrize("devices", [2, 3, 4])
@pytest.mark.parametrize("nbytes", [4 << 10, 64 << 10, 4 << 20])
def test_the_model_counts_the_bytes_that_an_all_reduce_moves(devices: int, nbytes: int) -> None:
    x = Tensor(np.ones((devices, nbytes // 4), "float32")).shard(CPUS[:devices])
    transport = cast("Any", Device[x.device]).transport
    before = transport.peer_bytes
    x.sum(0).realize()
    assert transport.peer_bytes - before == moved(devices, nbytes)


@pytest.mark.parametrize(("values", "each"), [(3, 1 << 10), (3, QUEUED), (100, QUEUED), (20, 100 << 10)])
def test_the_model_has_the_buckets_of_a_captured_step(values: int, each: int) -> None:
    copies = [
        parts.PlannedCopy(d, d * values + i, 0, 1 - d, 2 * values, 0, each, each, kept=False)
        for i in range(values)
        for d in (0, 1)
    ]
    ready = {d * values + i: i + 1 for i in range(values) for d in (0, 1)}
    found = parts.buckets(copies, ready, max(2 * QUEUED, -(-2 * values * each // MOST_BUCKETS)))
    assert len(found) == buckets(values, each)


def test_a_row_is_what_its_assumptions_give() -> None:
    """4 gradients of 1 MiB between two devices: one exchange of 4 MiB in 4 s, of a backward pass of 6 s."""
    link = Link(latency_s=0.5, copy_s=0.0, bandwidth=1 << 20)
    row = scaled(2, nbytes=4 << 20, values=4, compute_s=9.0, link=link)
    assert (row.sent, row.exchange_ms, row.step_after_ms) == (4 << 20, 4500, 13500)
    assert row.step_beside_ms == 10500  # the last of four buckets, and its latency
    assert row.efficiency_beside == 9 / 10.5


def test_the_table_has_a_row_for_each_number_of_devices(capsys: pytest.CaptureFixture[str]) -> None:
    def printed(words: Sequence[str]) -> list[str]:
        assert main(words) == 0
        return capsys.readouterr().out.splitlines()

    assert [json.loads(line)["devices"] for line in printed(["--json"])] == list(DEVICES)
    assert len(printed([])) == 1 + len(DEVICES)
    with pytest.raises(SystemExit):
        main(["--latency-us", "-1"])
