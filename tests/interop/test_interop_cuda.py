"""CUDA C++ kernels, compiled by NVRTC before (`tests.guests.build_cuda`), against NumPy on emulated GPUs.

The quick run takes a sample; the whole run takes every kernel on every target.
"""

from __future__ import annotations

import pytest

import hcq
from hcq.errors import UsageError
from tests.guests import corpus, split


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
