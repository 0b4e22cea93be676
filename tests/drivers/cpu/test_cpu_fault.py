"""A fault of the processor, observed through the neutral model."""

from __future__ import annotations

import pytest

import hcq
from drivers.cpu import layouts
from hcq.pushbuffer import PushBuffer
from tests.drivers.cpu.rig import NoArguments
from tests.limits import HANG_S


def test_fault_is_raised_by_the_wait_and_by_every_later_call() -> None:
    device = hcq.open("cpu", validate=False)
    pushbuffer = PushBuffer(64, NoArguments())
    pushbuffer.words += (0x4D, *layouts.Nop.pack()[1:])
    device.compute.ring.submit(pushbuffer)
    point = device.compute.submit(device.compute.record(label="behind it"))
    seen = []
    for refused in (
        lambda: point.wait(timeout_s=HANG_S),
        lambda: device.alloc(4096),
        lambda: device.compute.submit(device.compute.record()),
        device.sync,
    ):
        with pytest.raises(
            hcq.DeviceFault, match=r"(?s)bad packet.*unknown op 0x4d.*compute queue 0"
        ) as caught:
            refused()
        seen.append(caught.value.report)
    assert all(report is seen[0] for report in seen)
    assert not point.done()
    device.close()
    with hcq.open("cpu", validate=False) as again:
        again.compute.submit(again.compute.record()).wait(timeout_s=HANG_S)


def bad_packet() -> PushBuffer:
    pushbuffer = PushBuffer(64, NoArguments())
    pushbuffer.words += (0x4D, *layouts.Nop.pack()[1:])
    return pushbuffer


def test_a_device_continues_after_a_bad_packet() -> None:
    with hcq.open("cpu", validate=True) as device:
        kept, source = device.alloc(1 << 20), device.alloc(1 << 20)
        kept.host()[:] = b"k" * (1 << 20)
        gate = device.signal(host_set=True)
        held = device.copies[0].submit(device.copies[0].record().wait(gate, 1).copy(kept, source, 1 << 20))
        for _ in range(3):
            device.compute.ring.submit(bad_packet())
            behind = device.compute.submit(device.compute.record())
            with pytest.raises(hcq.DeviceFault, match="bad packet"):
                behind.wait(timeout_s=HANG_S)
            device.recover()
            gate.value = 1
            for queue in device.queues:
                queue.submit(queue.record().fill(source, 5)).wait(timeout_s=HANG_S)
            assert bytes(source.host()) == b"\5\0\0\0" * (1 << 18)
            for lost in (held, behind):
                with pytest.raises(hcq.DeviceFault, match="bad packet"):
                    lost.wait(timeout_s=HANG_S)
        assert bytes(kept.host()) == b"k" * (1 << 20), "what waited at the fault did not run afterwards"


def test_a_device_whose_queue_waits_for_lost_work_of_another_recovers() -> None:
    with hcq.open("cpu", validate=True) as device, hcq.open("cpu", validate=True) as other:
        device.compute.ring.submit(bad_packet())
        lost = device.compute.submit(device.compute.record())
        behind = other.compute.submit(other.compute.record(), after=[lost])
        with pytest.raises(hcq.DeviceFault, match="bad packet"):
            behind.wait(timeout_s=HANG_S)
        device.recover()
        with pytest.raises(hcq.DeviceFault, match="bad packet"):
            behind.wait(timeout_s=HANG_S)
        other.recover()
        point = device.compute.submit(device.compute.record())
        other.compute.submit(other.compute.record(), after=[point]).wait(timeout_s=HANG_S)
        with pytest.raises(hcq.UsageError, match="has no fault"):
            other.recover()


def test_a_word_that_overwrites_a_queues_signal_faults_the_device_and_is_recovered_from() -> None:
    with hcq.open("cpu", validate=False) as device:
        kept = device.alloc(64)
        kept.host()[:4] = b"kept"
        gate = device.signal(host_set=True)
        held = device.compute.submit(device.compute.record().wait(gate, 1).fill(kept, 0))
        pushbuffer = PushBuffer(64, NoArguments())
        pushbuffer.words += layouts.SetSignal.pack(signal=held.signal.va, value=1 << 40)
        device.copies[0].ring.submit(pushbuffer)
        with pytest.raises(
            hcq.DeviceFault, match=rf"compute 0 of cpu:0 holds {1 << 40}, .* submitted is 1\b"
        ):
            held.wait(timeout_s=HANG_S)
        assert device.recover() == (kept,)
        gate.value = 1
        assert bytes(kept.host()[:4]) == b"kept"
        device.compute.submit(device.compute.record().fill(kept, 1, 64)).wait(timeout_s=HANG_S)
        assert kept.host()[0] == 1
