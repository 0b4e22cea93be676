"""Kernels of CUDA C++ with clusters by cooperative groups, through the driver, with every check."""

from __future__ import annotations

import lzma
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import hcq
import interop
from hcq.errors import DeviceFault

if TYPE_CHECKING:
    from collections.abc import Iterator

DATA = Path(__file__).parent / "data" / "clusters"
DEVICES = {"sm_90a": "nv-emu:checked", "sm_120a": "nv-emu:sm_120+checked"}


def text_of(arch: str) -> str:
    return lzma.decompress((DATA / f"{arch}.ptx.xz").read_bytes()).decode()


@pytest.fixture(scope="module", params=list(DEVICES))
def opened(request: pytest.FixtureRequest) -> Iterator[tuple[hcq.Device, str]]:
    with hcq.open(DEVICES[request.param]) as device:
        yield device, text_of(request.param)


def test_a_histogram_over_the_shared_memory_of_a_cluster(opened: tuple[hcq.Device, str]) -> None:
    device, text = opened
    data = np.random.default_rng(0).integers(0, 1 << 30, 1000).astype(np.uint32)
    out = interop.array(device, np.zeros(256, np.uint32))
    kernel = interop.load(device, text, entry="histogram")
    kernel.launch(interop.array(device, data), out, data.size, groups=8, threads=64).wait()
    assert np.array_equal(out.numpy(), np.bincount(data & 255, minlength=256))


@pytest.mark.parametrize("size", [2, 8])
def test_every_workgroup_reads_all_of_its_cluster(opened: tuple[hcq.Device, str], size: int) -> None:
    device, text = opened
    values = np.arange(8 * 32, dtype=np.float32).reshape(8, 32)
    out = interop.empty(device, (8, 32))
    kernel = interop.load(device, text, entry="ring")
    # Eight workgroups fit at the same time in any clusters.
    kernel.launch(
        interop.array(device, values), out, groups=8, threads=32, shared=128, cluster=(size, 1, 1),
        cooperative=True,
    ).wait()  # fmt: skip
    sums = values.reshape(-1, size, 32).sum(1, keepdims=True).repeat(size, 1).reshape(8, 32)
    assert np.array_equal(out.numpy(), sums + 1000 * size + 0.5)


@pytest.mark.parametrize(
    ("entry", "message"),
    [("leaving", "that has exited|before that workgroup exits"), ("early", "race in shared memory")],
)
def test_mistakes_are_named(entry: str, message: str) -> None:
    with hcq.open(DEVICES["sm_90a"]) as device:
        values = interop.array(device, np.zeros((8, 32), np.float32))
        out = interop.empty(device, (8, 32))
        kernel = interop.load(device, text_of("sm_90a"), entry=entry)
        with pytest.raises(DeviceFault, match=message):
            kernel.launch(values, out, groups=8, threads=32, shared=128, cluster=(4, 1, 1)).wait()
