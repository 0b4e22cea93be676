"""Clocks, spans and the trace that is drawn of them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from hcq.graph import Graph
from hcq.profile import Clock, Span, chrome_trace
from hcq.registry import wrap
from tests.hcq.fake import FakeDevice

if TYPE_CHECKING:
    from pathlib import Path


@given(
    st.integers(0, 1 << 62), st.integers(0, 1 << 62), st.integers(1, 10**10), st.integers(-(10**12), 10**12)
)
def test_a_clock_is_linear_and_passes_through_its_tie(ticks: int, host_ns: int, hz: int, delta: int):
    clock = Clock(ticks, host_ns, hz)
    assert clock.to_ns(ticks) == host_ns
    assert clock.to_ns(ticks + delta) - host_ns == delta * 10**9 // hz


def test_a_trace_has_a_process_a_device_and_a_thread_a_queue():
    spans = [
        Span("late", "copy 0 of cpu:0", 3000, 4500),
        Span("early", "compute 0 of cpu:0", 1000, 2000),
        Span("other", "compute 0 of nv:0", 1000, 2000),
    ]
    events = json.loads(chrome_trace(spans))["traceEvents"]
    drawn = {event["name"]: event for event in events if event["ph"] == "X"}
    assert (drawn["late"]["ts"], drawn["late"]["dur"]) == (3.0, 1.5)
    assert drawn["late"]["pid"] == drawn["early"]["pid"] != drawn["other"]["pid"]
    assert drawn["late"]["tid"] != drawn["early"]["tid"]
    names = {(event["name"], event["args"]["name"]) for event in events if event["ph"] == "M"}
    assert {("process_name", "cpu:0"), ("process_name", "nv:0"), ("thread_name", "copy 0")} <= names


def test_a_traced_device_writes_what_its_queues_ran_when_it_closes(tmp_path: Path):
    path = tmp_path / "trace.json"
    with wrap(FakeDevice(), trace=str(path)) as device:
        a = device.alloc(64)
        device.compute.submit(device.compute.record(label="fill it").fill(a, 1))
        graph = Graph(label="graph")
        graph.add(device.compute, device.compute.record(label="again").fill(a, 2))
        graph.compile().replay()
    events = json.loads(path.read_text())["traceEvents"]
    assert [event["name"] for event in events if event["ph"] == "X"] == ["fill it", "again"]
