"""Hangs: time limits of submissions, breadcrumbs, crash reports, and recovery afterwards."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

import hcq
from hcq.config import override
from tests.conformance.conftest import Lab, opened, read
from tests.limits import HANG_S
from tools.trace.__main__ import main as trace

if TYPE_CHECKING:
    from pathlib import Path


def test_a_submission_over_its_limit_is_a_hang_and_recovers(
    name: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    crash = tmp_path / "crash.jsonl"
    with override(breadcrumbs=True, crash=str(crash)):
        lab = Lab(opened(name))
        request.addfinalizer(lab.close)
        out = lab.words([0], "result")
        commands = lab.queue.record(label="step")
        for kernel in ("count", "count"):
            lab.run(commands, kernel, out).barrier()
        lab.queue.submit(commands).wait(timeout_s=HANG_S)
        graph = hcq.Graph(label="again")
        graph.add(lab.queue, lab.run(lab.queue.record(), "count", out))
        graph.compile().replay().wait(timeout_s=HANG_S)
        end = lab.queue.record(label="endless").fill(out, 7)
        for _ in range(9):
            lab.run(end.barrier(), "spin", out, 0xFFFF_FFFF)
        point = lab.queue.submit(end, limit_s=0.1)
        with pytest.raises(hcq.DeviceFault) as found:
            point.wait(timeout_s=HANG_S)
        report = found.value.report
        assert report.kind is hcq.FaultKind.HANG
        assert report.kernel == "spin"
        assert "'endless' runs for more than 0.1 s" in report.message
        done, left = "fill, command 0 of submission 3", "kernel spin, command 2 of submission 3"
        assert f"finished last: {done}; not finished: {left}" in str(report)
        record = json.loads(crash.read_text())
        assert record["memory"]["owners"]
        assert trace(["show", str(crash)]) == 0
        while True:
            try:
                lost = lab.device.recover()
                break
            except hcq.DriverError:  # a kernel on the host ends between two workgroups
                assert name == "cpu"
        assert out in lost
        lab.queue.submit(lab.queue.record().fill(out, 5)).wait(timeout_s=HANG_S)
        assert read(out) == [5]
