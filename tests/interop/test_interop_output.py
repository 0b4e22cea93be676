"""`printf` and assertions of kernels that others compiled: NVRTC (talk, check) and Triton (show)."""

from pathlib import Path

import numpy as np
import pytest

import hcq
import interop
from compiler.targets.nvptx import assembler
from compiler.targets.nvptx.assembler import assemble
from interop.device_library import with_library

pytestmark = pytest.mark.skipif(not assembler.available(), reason="neither nvJitLink nor ptxas is installed")
DATA = Path(__file__).parent / "data" / "printing"
TALK, CHECK, SHOW = ((DATA / f"{name}.ptx").read_text() for name in ("talk", "check", "show"))

DEVICE = "nv-emu"


def ints(device: hcq.Device, *values: int) -> interop.DeviceArray:
    return interop.array(device, np.array(values, np.int32))


def test_printf_of_a_cuda_kernel_appears_when_a_wait_ends(
    device: hcq.Device, capsys: pytest.CaptureFixture[str]
):
    kernel = interop.load(device, TALK)
    point = kernel.launch(ints(device, 7, -3, 4, 5), interop.empty(device, 8, "float64"), groups=2, threads=4)
    point.wait()
    lines = capsys.readouterr().out.splitlines()
    assert sorted(lines) == sorted(
        [
            "7|    7|7    |+7|00007|007|-7",
            "-3|   -3|-3   |-3|-0003|-003|3",
            "4000000000 ff FF 0xff 10 010 Az %",
            "4000000000 ff FF 0xff 10 010 Bz %",
            *["-5000000000 18000000000000000000 123456789a 4464 44     42 3.14"] * 2,
            *["1.500000 1.234568e+04 1e-07 1E+20 0x1p+0 0X1.999999999999AP-4      2.500|2.50e+00  |+2.5"] * 2,
            *["[text] [     right] [left  ] [cu] (nil)"] * 2,
            *["nothing"] * 2,
        ]
    )
    device.sync()
    assert capsys.readouterr().out == "", "once"


def test_calls_that_do_not_fit_are_counted(device: hcq.Device, capsys: pytest.CaptureFixture[str]):
    kernel = interop.load(device, SHOW, output_bytes=2048)
    for _ in range(2):  # the second launch finds the memory empty again
        kernel.launch(ints(device, *range(32)), 32, None, None, groups=1).wait()
        seen = capsys.readouterr()
        count = len(seen.out.splitlines())
        assert 0 < count < 32
        assert f"{32 - count} calls of printf" in seen.err
    with pytest.raises(hcq.UsageError, match="output_bytes=100"):
        interop.load(device, SHOW, output_bytes=100)


def test_text_is_printed_once_all_work_is_done(device: hcq.Device, capsys: pytest.CaptureFixture[str]):
    kernel, gate = interop.load(device, SHOW), device.signal(host_set=True)
    other = device.copies[0]
    blocked = other.submit(other.record().wait(gate, 1))
    kernel.launch(ints(device, *range(32)), 32, None, None, groups=1).wait()
    assert capsys.readouterr().out == "", "a queue still works"
    del kernel
    gate.value = 1
    blocked.wait()
    assert capsys.readouterr().out.count("value: ") == 32
    device.sync()
    assert not device.outputs, "its memory is free once no program uses it"


def test_a_failed_assertion_is_a_fault_that_names_it():
    with hcq.open("nv-emu") as device:
        kernel = interop.load(device, CHECK)
        kernel.launch(ints(device, 1, 2, 3, 4), groups=1, threads=4).wait()
        point = kernel.launch(ints(device, 1, 2, 9, 4), groups=1, threads=4)
        with pytest.raises(hcq.DeviceFault) as caught:
            point.wait()
        (first, *_) = caught.value.reports
        assert 'check.cu:3: check: `x[threadIdx.x] < 5 && "bounds"`' in first
        assert "block (0, 0, 0), thread (2, 0, 0)" in first
        assert str(caught.value).startswith("nv-emu:0: device assertion failed")
        device.recover()
        kernel.launch(ints(device, 1, 2, 3, 4), groups=1, threads=4).wait()


def test_what_was_printed_before_a_fault_is_not_lost(capsys: pytest.CaptureFixture[str]):
    with hcq.open("nv-emu") as device:
        show = interop.load(device, SHOW)
        point = show.launch(ints(device, *range(90, 122)), 32, None, None, groups=1)
        with pytest.raises(hcq.DeviceFault, match="too large"):
            point.wait()
        assert capsys.readouterr().out.count("value: ") == 32


def test_a_finished_cubin_prints_only_with_its_ptx(device: hcq.Device, capsys: pytest.CaptureFixture[str]):
    finished = assemble(SHOW.replace("sm_80", "sm_90a"), "sm_90a").replace(b".hcq.ptx", b".old.ptx")
    with pytest.raises(hcq.UnsupportedError, match="vprintf"):
        interop.load(device, finished)
    kernel = interop.load(device, finished, ptx=SHOW)
    kernel.launch(ints(device, *range(32)), 32, None, None, groups=1).wait()
    assert capsys.readouterr().out.count("value: ") == 32


def test_memory_from_a_heap_is_refused(device: hcq.Device):
    text = CHECK.replace("check", "other").replace(
        ".visible", ".extern .func (.param .b64 r) malloc (.param .b64 n);\n.visible", 1
    )
    with pytest.raises(hcq.UnsupportedError, match="'malloc'"):
        interop.load(device, text)


def test_lines_of_the_kernel_keep_their_numbers():
    own = with_library(SHOW, 0x1000, 4096).splitlines()
    for number, line in enumerate(SHOW.splitlines()):
        if "vprintf" not in line and ".section" not in line and "assertfail" not in line and number < 150:
            assert own[number].removeprefix(".func ") == line.removeprefix(".extern .func ")
