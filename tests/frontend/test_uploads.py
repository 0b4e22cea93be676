"""Host data on devices that the host cannot address: how often the doorbell is rung, and what arrives."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from frontend import Device, Tensor
from frontend.device import SMALL
from hcq.errors import HcqError
from tools.walk import count

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture(params=["nv-emu", "amd-emu", "amd-emu:gfx942"])
def gpu(request: pytest.FixtureRequest) -> str:
    try:
        assert Device[request.param].direct is False
    except HcqError as error:
        pytest.skip(f"no {request.param}: {error}")
    return request.param


def bells(device: str, action: Callable[[], object]) -> int:
    Device[device].synchronize()
    return count(action).doorbells


def test_doorbells_of_a_sum_an_upload_and_a_download(gpu: str) -> None:
    def total() -> Tensor:
        return (Tensor([2], device=gpu) + Tensor([3], device=gpu)).realize()

    assert total().tolist() == [5]
    assert bells(gpu, total) == 1, "two stores and the launch are one submission"
    data = np.arange(SMALL, dtype=np.int32)
    large = Tensor(data, device=gpu) + 1
    large.realize()
    kept: list[Tensor] = []
    assert bells(gpu, lambda: kept.append(Tensor(data, device=gpu))) == 1, "an upload is one copy"
    assert bells(gpu, lambda: kept.append((kept[0] + 1).realize())) == 1, "the launch carries the wait for it"
    assert bells(gpu, kept[1].tolist) == 1, "a download is one copy"
    assert kept[1].tolist() == (data + 1).tolist()


def test_data_of_several_sizes_arrives_before_kernels_copies_and_downloads(gpu: str) -> None:
    rng = np.random.default_rng(5)
    for size in (1, 3, 8, SMALL - 1, SMALL + 1):
        data = rng.integers(-128, 128, size, dtype=np.int8)
        t = Tensor(data, device=gpu)
        assert t.tolist() == data.tolist(), f"{size} bytes, read at once"
        assert (Tensor(data, device=gpu) + 1).tolist() == (data + np.int8(1)).tolist(), f"{size} bytes, added"
        written = Tensor(data, device=gpu)
        old = written.clone()
        written.assign(written * 2).realize()
        assert (written.tolist(), old.tolist()) == ((data * np.int8(2)).tolist(), data.tolist()), size


def test_many_small_tensors_without_a_launch_between_them(gpu: str) -> None:
    held = [Tensor([i, -i], device=gpu) for i in range(50)]
    assert [t.tolist() for t in held] == [[i, -i] for i in range(50)]
