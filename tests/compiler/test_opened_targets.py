"""Targets of opened devices: compute units, shared memory and threads that differ from the architecture's."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

import hcq
from compiler.compile import compile_kernel
from compiler.pipeline import planned
from compiler.targets import arch_for, target_of
from frontend.device import TensorDevice
from hcq.errors import UnsupportedError
from hcq.hardware import DeviceInfo
from tests.compiler.kernels import ARCH, load, loop, op, reduce, sink, store

if TYPE_CHECKING:
    from compiler.nest.loop_nest import LoopNest


def info(arch: str, units: int, **limits: int) -> DeviceInfo:
    return DeviceInfo(
        driver="amd", index=0, name="", arch=arch, vram_bytes=0, compute_queues=1, copy_queues=0,
        compute_units=units, limits=limits,
    )  # fmt: skip


def product_plan(arch: str) -> LoopNest:
    i, j, k = loop(0, 1024), loop(1, 1024), loop(2, 1024)
    value = op("MUL", load(1, i * 1024 + k), load(2, k * 1024 + j))
    return planned(sink(store(0, i * 1024 + j, reduce(value, "ADD", k))), target_of(arch))[1]


def test_a_device_like_its_architecture_has_its_name() -> None:
    assert arch_for(info("gfx942", 304, max_shared_bytes=65536, max_threads=1024)) == "gfx942"
    assert arch_for(info("gfx942", 0)) == "gfx942"
    assert arch_for(info("sm_90a", 132, max_shared_bytes=232448)) == "sm_90a"


def test_a_smaller_device_has_options() -> None:
    name = arch_for(info("sm_90a", 114, max_shared_bytes=101376, max_threads=192))
    assert name == "sm_90a:units=114:shared=101376:threads=192"
    whole, made = target_of("sm_90a"), target_of(name)
    assert (made.arch, made.cores, made.dynamic_shared_bytes) == ("sm_90a", 114, 101376)
    assert (made.shared_bytes, made.threads) == (whole.shared_bytes, 128)
    assert made.settings != whole.settings
    assert target_of(name) is made


def test_options_of_the_code_and_of_the_device_stand_together() -> None:
    made = target_of("gfx1100:wave64:units=84")
    assert (made.warp, made.cores) == (target_of("gfx1100:wave64").warp, 84)


@pytest.mark.parametrize("name", ["gfx942:cores=38", "gfx942:units=", "gfx942:units=0", "gfx942:units=-1"])
def test_other_options_are_refused(name: str) -> None:
    with pytest.raises(UnsupportedError, match="units, shared, threads"):
        target_of(name)


def test_a_product_is_divided_for_the_units_and_the_memory_that_there_are() -> None:
    whole, part = product_plan("gfx942"), product_plan("gfx942:units=38")
    assert part.launch()[0] != whole.launch()[0]
    small = product_plan("gfx942:shared=4096")
    assert small.launch()[0] != whole.launch()[0]


def test_kernels_of_a_name_with_options_are_images_of_the_architecture() -> None:
    ast = sink(store(0, loop(0, 64), load(1, loop(0, 64))))
    assert compile_kernel(ast, f"{ARCH}:units=7").image.arch == ARCH


def test_tensors_use_the_name_of_the_opened_device() -> None:
    with hcq.open("cpu") as device:
        opened = TensorDevice("cpu", device)
        device.info = replace(device.info, compute_units=target_of(device.info.arch).cores + 1)
        assert opened.arch == f"{device.info.arch}:units={device.info.compute_units}"
