"""Counting kernels of open devices: a `with` block, the report of HCQ_COUNTERS, devices without counters."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

import hcq
import interop
from emulator.devices import boards
from frontend import Tensor
from frontend.device import Device
from hcq.config import override
from hcq.counters import AccessCounts, Counters, KernelCounters
from hcq.errors import UnsupportedError, UsageError
from interop.triton_backend.timing import bench, estimated

if TYPE_CHECKING:
    from pathlib import Path

PTX = """.version 8.5
.target sm_80
.address_size 64
.visible .entry scale(.param .u64 .ptr .global out, .param .u64 .ptr .global a, .param .f32 factor)
.reqntid 64 {
  .reg .b32 %r<4>; .reg .b64 %rd<5>; .reg .f32 %f<3>;
  ld.param.u64 %rd0, [out]; ld.param.u64 %rd1, [a]; ld.param.f32 %f0, [factor];
  mov.u32 %r0, %ctaid.x; mov.u32 %r1, %tid.x; mad.lo.u32 %r2, %r0, 64, %r1;
  mul.wide.u32 %rd2, %r2, 4; add.u64 %rd3, %rd0, %rd2; add.u64 %rd4, %rd1, %rd2;
  ld.global.f32 %f1, [%rd4]; mul.f32 %f2, %f1, %f0; st.global.f32 [%rd3], %f2;
  ret;
}
"""


def run(device: hcq.Device) -> None:
    kernel = interop.load(device, PTX)
    a = interop.array(device, np.arange(128, dtype=np.float32))
    out = interop.empty(device, 128)
    kernel.launch(out, a, 2.5, groups=2)
    assert out.numpy()[:3].tolist() == [0.0, 2.5, 5.0]


def test_launches_are_counted_inside_the_block_only():
    with hcq.open("nv-emu:sm_80") as device:
        run(device)
        with hcq.counting(device) as outer:
            run(device)
            with hcq.counting(device) as inner:
                run(device)
        run(device)
    assert [one.launches for one in (inner["scale"], outer["scale"])] == [1, 2]
    found = inner["scale"]
    assert (found.arch, found.groups, found.warps) == ("sm_80", 2, 4)
    assert (found.global_["load"].units, found.global_["store"].units) == (16, 16)
    assert (found.read, found.written) == (512, 512)
    assert found.flops == {"f32": 128}
    assert found.instructions["float"] == 4
    assert found.registers > 0
    assert found.code > 10
    assert found.occupancy is not None
    assert found.occupancy.groups == 32
    assert [(one.chip, one.bound) for one in found.estimates] == [("A100", "on-chip")]
    assert outer["scale"].estimates[0].seconds == pytest.approx(2 * found.estimates[0].seconds)
    with pytest.raises(UsageError, match="scale"):
        inner["other"]


def test_kernels_of_amd_gpus_have_their_names():
    values = Tensor([1.0, 2.0, 3.0], device="amd-emu:gfx1100").realize()
    device = Device["amd-emu:gfx1100"].hcq
    with hcq.counting(device) as counted:
        assert (values + 1).tolist() == [2.0, 3.0, 4.0]
    (found,) = counted
    assert not found.kernel.startswith("code_")
    assert (found.arch, found.unit, found.lanes, found.launches) == ("gfx1100", 128, 32, 1)
    assert found.global_["store"].units == 1
    assert found.flops["f32"] == 3
    assert found.registers % 8 == 0
    assert [one.chip for one in found.estimates] == ["RX 7900 XTX"]
    assert found.occupancy is not None


STRIDED = PTX.replace("mul.wide.u32 %rd2, %r2, 4", "mul.wide.u32 %rd2, %r2, 128")


def test_a_benchmark_on_an_emulated_gpu_ranks_by_what_kernels_move():
    with hcq.open("nv-emu:sm_80") as device:
        out = interop.empty(device, 32 * 128)
        a = interop.array(device, np.zeros(32 * 128, np.float32))
        near, far = (interop.load(device, text) for text in (PTX, STRIDED))
        times = [bench(device, lambda one=one: one.launch(out, a, 2.5, groups=2)) for one in (near, far)]
        again = bench(device, lambda: near.launch(out, a, 2.5, groups=2), quantiles=(0.5, 0.2, 0.8))
    assert 0 < times[0] < times[1]
    assert again == [times[0]] * 3


@pytest.mark.parametrize("name", ["nv-emu:sm_86", "nv-emu:sm_89", "amd-emu:gfx942"])
def test_every_emulated_gpu_has_published_rates(name: str):
    with hcq.open(name) as device:
        arch = device.info.arch.rstrip("a")
    assert boards()[arch]


def test_a_kernel_of_a_gpu_without_rates_has_no_estimate():
    counted = Counters()
    counted.add(KernelCounters(kernel="k", arch="sm_75", lanes=32, unit=32, launches=1))
    with pytest.raises(UnsupportedError, match="kernel k: no rates of a GPU are listed for sm_75"):
        estimated(counted)


def test_the_report_of_all_devices_is_a_json_file(tmp_path: Path):
    path = tmp_path / "counters.json"
    with override(counters=str(path)):
        for _ in range(2):
            with hcq.open("nv-emu:sm_80") as device:
                run(device)
    found = json.loads(path.read_text())
    assert [one["kernel"] for one in found] == ["scale", "scale"]
    assert found[0]["global"]["load"]["units"] == 16
    assert found[0]["moved"] == 1024
    assert found[0]["estimates"][0]["chip"] == "A100"


def test_the_table_goes_to_the_standard_error(capsys: pytest.CaptureFixture[str]):
    with override(counters="1"), hcq.open("nv-emu:sm_80") as device:
        run(device)
    shown = capsys.readouterr()
    assert not shown.out
    assert "scale (sm_80): 1 launch\n" in shown.err
    assert "4 requests of 128 lanes, 512 bytes, 16 sectors of 32 bytes" in shown.err
    assert "uncalibrated" in shown.err


def test_a_device_that_is_not_emulated_counts_nothing():
    with hcq.open("cpu") as device, pytest.raises(UnsupportedError, match="emu"), hcq.counting(device):
        pass
    with override(counters="1"), pytest.warns(UserWarning, match="cpu"), hcq.open("cpu"):
        pass


def test_counts_add_up():
    total = Counters()
    for _ in range(2):
        one = KernelCounters(kernel="k", arch="sm_80", lanes=32, unit=32, launches=1)
        one.shared["load"].add(AccessCounts(requests=1, lanes=32, bytes=128, units=4, least=1))
        one.instructions["float"] = 2
        one.lane_instructions["float"] = 32
        total.add(one)
    assert total["k"].conflicts == 6
    assert total["k"].active_lanes == 0.5
    assert "6 cycles" in total.table()
