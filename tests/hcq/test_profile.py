"""Clocks, spans and the trace that is drawn of them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hcq.graph import Graph
from hcq.profile import PENDING, Clock, Span, chrome_trace, tie
from hcq.registry import wrap
from tests.hcq.fake import FakeDevice

if TYPE_CHECKING:
    from pathlib import Path

    from hcq.device import Device


def drawn(path: Path) -> list[str]:
    """Return the names of the spans in a trace, ordered by start."""
    return [event["name"] for event in json.loads(path.read_text())["traceEvents"] if event["ph"] == "X"]


@given(
    st.integers(0, 1 << 62), st.integers(0, 1 << 62), st.integers(1, 10**10), st.integers(-(10**12), 10**12)
)
def test_a_clock_is_linear_and_passes_through_its_tie(ticks: int, host_ns: int, hz: int, delta: int):
    clock = Clock(ticks, host_ns, hz)
    assert clock.to_ns(ticks) == host_ns
    assert clock.to_ns(ticks + delta) - host_ns == delta * 10**9 // hz


def test_a_clock_is_tied_by_the_fastest_reading():
    host, device = iter([0, 9_000, 20_000, 20_010, 30_000, 37_000, 40_000, 45_000]), iter([1, 2, 3, 4])
    clock = tie(lambda: next(device), 1_000_000_000, host_ns=lambda: next(host))
    assert clock == Clock(ticks=2, host_ns=20_005, hz=1_000_000_000)


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


def test_spans_that_the_program_reads_stay_in_the_trace(tmp_path: Path):
    path = tmp_path / "trace.json"
    with wrap(FakeDevice(), trace=str(path)) as device:
        a = device.alloc(64)
        device.compute.submit(device.compute.record(label="one").fill(a, 1)).wait()
        assert [span.name for span in device.spans()] == ["one"]
        device.compute.submit(device.compute.record(label="two").fill(a, 1)).wait()
        assert [span.name for span in device.spans()] == ["two"]
        device.compute.submit(device.compute.record(label="three").fill(a, 1))
    assert drawn(path) == ["one", "two", "three"]


def replayed(device: Device) -> list[str]:
    """Replay a graph of a fill and a copy twice, with another buffer each time; return the spans' names."""
    a, graph = device.alloc(64), Graph(label="graph")
    to = graph.param("to", size=64)
    graph.add(device.compute, device.compute.record(label="step").fill(a, 7).barrier().copy(to, a, 32))
    executable = graph.compile()
    outs = [device.alloc(64) for _ in range(2)]
    for out in outs:
        executable.replay([out]).wait()
    assert [bytes(out.host())[:32] for out in outs] == [bytes([7, 0, 0, 0]) * 8] * 2
    return [span.name for span in device.spans()]


def test_a_profile_has_a_span_for_each_command_of_each_replay():
    with wrap(FakeDevice(), profile=True) as device:
        assert replayed(device) == 2 * ["fill 64 bytes", "copy 32 bytes"]


def test_a_profiled_trace_nests_commands_in_their_replay(tmp_path: Path):
    path = tmp_path / "trace.json"
    with wrap(FakeDevice(), profile=True, trace=str(path)) as device:
        names = replayed(device)
    assert names == 2 * ["step", "fill 64 bytes", "copy 32 bytes"]
    assert drawn(path) == names


def test_a_profile_has_a_span_for_each_command_of_a_submission():
    with wrap(FakeDevice(), profile=True) as device:
        a = device.alloc(64)
        record = device.compute.record()
        with record.span("mine"):
            record.fill(a, 1)
        device.compute.submit(record).wait()
        spans = {span.name: span for span in device.spans()}
    assert spans.keys() == {"mine", "fill 64 bytes"}
    inner, outer = spans["fill 64 bytes"], spans["mine"]
    assert outer.start_ns <= inner.start_ns <= inner.end_ns <= outer.end_ns


def test_without_a_profile_a_replay_records_no_time():
    with wrap(FakeDevice()) as device:
        assert replayed(device) == []


def test_unread_time_records_are_bounded():
    with wrap(FakeDevice(), profile=True) as device:
        a = device.alloc(64)
        record = device.compute.record().fill(a, 1)
        for _ in range(PENDING + 10):
            device.compute.submit(record).wait()
        assert len(device.span_log.pending) < PENDING
        assert len(device.spans()) == PENDING + 10


def test_a_stuck_device_writes_its_trace(tmp_path: Path):
    path = tmp_path / "trace.json"
    device = wrap(FakeDevice(), trace=str(path))
    device.compute.submit(device.compute.record(label="done").fill(device.alloc(64), 1)).wait()
    never = device.signal(host_set=True)
    device.compute.submit(device.compute.record(label="stuck").wait(never, 1))
    with pytest.warns(ResourceWarning, match="in flight"):
        device.close(timeout_s=0)
    assert drawn(path) == ["done"]
