"""Triton's kernels, compiled before (`tools.guests.build`), on the emulated GPUs, against NumPy.

The quick run takes a sample; the whole run takes every kernel on every target.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import hcq
import interop
from tools.guests import build, more_cases
from tools.guests.cases import placed
from tools.guests.tutorials import compare

if TYPE_CHECKING:
    from collections.abc import Iterator

DEVICES = {
    "sm_80": "nv-emu:sm_80",
    "sm_90": "nv-emu:sm_90",
    "sm_120": "nv-emu:sm_120",
    "gfx942": "amd-emu:gfx942",
    "gfx1100": "amd-emu:gfx1100",
    "gfx1201": "amd-emu:gfx1201",
}
CASES = {case.name: case for case in more_cases.ALL}


@functools.cache
def archive(target: str) -> dict[str, tuple[dict[str, Any], bytes]]:
    return build.read(build.DATA / f"triton_{target}.tar.xz")


@pytest.fixture(scope="module")
def devices() -> Iterator[dict[str, hcq.Device]]:
    opened: dict[str, hcq.Device] = {}
    yield opened
    for device in opened.values():
        device.close()


def run(device: hcq.Device, name: str, target: str) -> dict[str, Any]:
    """Launch one kernel; return the comparison with NumPy."""
    facts, code = archive(target)[name]
    case = CASES[name].make(np.random.default_rng(1))
    values = placed(case, lambda values, kind: interop.array(device, values, kind))
    kernel = interop.load(device, code, entry=facts["entry"])
    arguments: list[object] = [values[key] for key in facts["parameters"]]
    scratch = device.alloc(facts["scratch"] * math.prod(case.grid)) if facts["scratch"] else None
    arguments += [scratch, None][: len(kernel.signature.parameters) - len(arguments)]
    kernel.launch(*arguments, groups=case.grid, threads=facts["threads"], shared=facts["shared"])
    return compare(case, {key: values[key].numpy() for key in case.expected})


@pytest.mark.sampled(61)
@pytest.mark.parametrize("target", DEVICES)
@pytest.mark.parametrize("name", CASES)
def test_kernels_of_triton_agree_with_numpy(name: str, target: str, devices: dict[str, hcq.Device]):
    if name not in archive(target):
        assert f"{name} {target}" in build.EXPECTED
        return
    if target not in devices:
        devices[target] = hcq.open(DEVICES[target])
    assert "error" not in run(devices[target], name, target)


@pytest.mark.parametrize("target", DEVICES)
def test_every_case_was_compiled_for_every_target(target: str):
    missing = {f"{name} {target}" for name in CASES.keys() - archive(target).keys()}
    assert missing == {one for one in build.EXPECTED if one.endswith(f" {target}")}
