"""CUDA C++ kernels, compiled by NVRTC before (`tools.guests.build_cuda`), against NumPy on emulated GPUs.

The quick run takes a sample; the whole run takes every kernel on every target.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import hcq
import interop
from tools.guests import build, split
from tools.guests.cases import Data
from tools.guests.cuda_cases import CASES

if TYPE_CHECKING:
    from collections.abc import Iterator

DEVICES = {"sm_80": "nv-emu:sm_80", "sm_90a": "nv-emu:sm_90", "sm_120a": "nv-emu:sm_120"}
BY_NAME = {case.name: case for case in CASES}
OPEN = {"recursion": "how much stack"}
"""Kernel -> the part that is not supported, named by the refusal."""


@functools.cache
def archive(target: str) -> dict[str, tuple[dict[str, Any], bytes]]:
    return build.read(build.DATA / f"cuda_{target}.tar.xz")


@pytest.fixture(scope="module")
def devices() -> Iterator[dict[str, hcq.Device]]:
    opened: dict[str, hcq.Device] = {}
    yield opened
    for device in opened.values():
        device.close()


def run(device: hcq.Device, name: str, target: str) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Launch one kernel; return (seen, expected) of each result."""
    case = BY_NAME[name]
    given, expected = case.make(np.random.default_rng(1))
    values = {
        key: interop.array(device, one.values, one.kind) if isinstance(one, Data) else one
        for key, one in given.items()
    }
    kernel = interop.load(device, archive(target)[name][1], entry=name)
    kernel.launch(*values.values(), groups=case.grid, threads=case.threads, shared=case.shared)
    return {
        key: (values[key].numpy().reshape(wanted.shape).astype(np.float64), wanted)
        for key, wanted in expected.items()
    }


@pytest.mark.sampled(41)
@pytest.mark.parametrize("target", DEVICES)
@pytest.mark.parametrize("name", BY_NAME)
def test_kernels_of_cuda_agree_with_numpy(name: str, target: str, devices: dict[str, hcq.Device]):
    if name not in archive(target):
        assert BY_NAME[name].only not in {"", target}
        return
    if target not in devices:
        devices[target] = hcq.open(DEVICES[target])
    if name in OPEN:
        with pytest.raises(hcq.HcqError, match=OPEN[name]):
            run(devices[target], name, target)
        devices.pop(target).close()
        return
    for seen, wanted in run(devices[target], name, target).values():
        assert np.abs(seen - wanted).max() <= BY_NAME[name].tolerance * np.abs(wanted).max()


def test_modules_are_split_by_entry():
    text = (
        ".version 8.5\n.target sm_80\n.address_size 64\n"
        ".global .align 4 .b8 used[8] = {1, 2};\n.global .align 4 .b8 other[8];\n"
        ".func (.param .b32 r) helper(.param .b32 a)\n{\n ret;\n}\n"
        ".visible .entry first(.param .u64 p)\n{\n mov.u64 %rd0, used;\n call (r), helper, (a);\n ret;\n}\n"
        ".visible .entry second()\n{\n { ret; }\n}\n"
    )
    first = split.module_of(split.items(text), "first")
    assert ".version 8.5\n.target sm_80\n" in first
    assert "used[8]" in first
    assert "helper(.param" in first
    assert "other" not in first
    assert "second" not in first
