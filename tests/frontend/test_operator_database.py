"""Samples of PyTorch's operator database: results, dtypes, structures, gradients and refusals are PyTorch's.

`python -m tests.oracles.opdb --record` recorded them; without `--record` it compares many more. Inputs are
plain tensors, slices with strides and lazy flips in turn.
"""

from __future__ import annotations

import pytest

from frontend import Device
from tests.oracles.opdb import archive
from tests.oracles.opdb.__main__ import in_place
from tests.oracles.opdb.judge import judged

RECORDS = archive.read()
FINE = {"same", "both raise", "decided"}
SLACK = 4.0
"""Processors add up in other orders; the tool compares without it."""
LATER = {"refused", "accident", "only PyTorch raises", "near"}
"""Outcomes that stay as they were recorded, or become fine."""


@pytest.mark.sampled(64)
@pytest.mark.parametrize("entry", RECORDS)
def test_samples_have_the_answers_of_pytorch(entry: str):
    for n, (call, want, seen) in enumerate(RECORDS[entry]):
        kind, text = judged(call, want, seen=("plain", "slice", "flip")[n % 3], slack=SLACK)
        assert kind in FINE or (kind == seen and seen in LATER), f"{kind}: {call}: {text}"
        if kind == "same" and not n and not want.error and in_place(call, want):
            kind, text = judged(call, want, in_place=True, slack=SLACK)
            assert kind in FINE, f"in place, {kind}: {call}: {text}"


ON_GPUS = (
    "addmm", "argmax", "baddbmm", "bitwise_left_shift", "cat", "char", "cumsum", "div:floor_rounding",
    "einsum", "erfinv", "fmod", "index_add", "logcumsumexp", "nn.functional.conv_transpose2d",
    "nn.functional.cross_entropy", "permute", "pow", "amax", "softmax", "sort", "split", "stack", "std",
    "unique",
)  # fmt: skip
"""Entries with few kernels, of kinds of which GPUs have others: sums, scans, products, quotients, powers."""


@pytest.mark.slow
@pytest.mark.sampled(4)
@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("device", ["nv-emu", "amd-emu", "amd-emu:gfx942"])
def test_samples_on_emulated_gpus_have_the_answers_of_pytorch(
    device: str, part: int, monkeypatch: pytest.MonkeyPatch
):
    """The first sample of an entry and the last, whose dtype is narrow."""
    monkeypatch.setattr(Device, "DEFAULT", device)
    for entry in ON_GPUS[part::4]:
        records = [r for r in RECORDS[entry] if not r[1].error]
        for call, want, _ in records[:: len(records) - 1]:
            kind, text = judged(call, want, seen="flip", slack=SLACK)
            assert kind in FINE, f"{kind}: {call}: {text}"


def test_most_samples_are_the_same():
    every = [seen for records in RECORDS.values() for _, _, seen in records]
    assert len(every) > 1500
    assert every.count("same") + every.count("both raise") > 0.8 * len(every)
