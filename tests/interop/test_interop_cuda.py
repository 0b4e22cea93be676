"""CUDA C++ kernels, compiled before (tests.guests.build_cuda), also with clusters, against NumPy."""

from __future__ import annotations

import lzma
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import hcq
import interop
from hcq.errors import DeviceFault, UsageError
from tests.guests import corpus, split

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.mark.sampled(41)
@pytest.mark.parametrize("target", corpus.CUDA)
@pytest.mark.parametrize("name", corpus.CUDA_CASES)
def test_kernels_of_cuda_agree_with_numpy(name: str, target: str, devices: dict[str, hcq.Device]):
    case = corpus.CUDA_CASES[name]
    assert (name in corpus.archive(f"{corpus.language_of(name)}_{target}")) == case.has(target)
    if not case.has(target):
        return
    if target not in devices:
        devices[target] = hcq.open(corpus.CUDA[target])
    if name in corpus.REFUSED:
        with pytest.raises(hcq.HcqError, match=corpus.REFUSED[name]):
            corpus.run_cuda(devices[target], name, target)
        devices.pop(target).close()
        return
    assert not corpus.run_cuda(devices[target], name, target)


MODULE = (
    ".version 8.5\n.target sm_80\n.address_size 64\n"
    ".global .align 4 .b8 used[8] = {1, 2};\n.global .align 4 .b8 other[8];\n"
    ".func (.param .b32 r) helper(.param .b32 a)\n{\n ret;\n}\n"
    ".visible .entry first(.param .u64 p)\n{\n mov.u64 %rd0, used;\n call (r), helper, (a);\n ret;\n}\n"
    ".visible .entry second()\n{\n { ret; }\n}\n"
)


def test_modules_are_split_by_entry():
    first = split.module_of(split.items(MODULE), "first")
    assert ".version 8.5\n.target sm_80\n" in first
    assert "used[8]" in first
    assert "helper(.param" in first
    assert "other" not in first
    assert "second" not in first


@pytest.mark.parametrize("name", ["third", "helper", "used"])
def test_a_name_that_is_no_entry_is_refused_with_the_entries(name: str):
    with pytest.raises(UsageError, match=rf"entry {name!r} .*\nhint: .* first, second"):
        split.module_of(split.items(MODULE), name)


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
