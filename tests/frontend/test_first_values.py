"""First values of layers have PyTorch's distributions (recorded by `tests.oracles.first_values`)."""

from __future__ import annotations

import pytest

import frontend
from tests.oracles.first_values import record
from tests.oracles.recording import recorded

WANT = recorded("first_values.json")


@pytest.mark.sampled(12)
@pytest.mark.parametrize("text", WANT)
def test_first_values_have_pytorch_s_mean_deviation_and_shape(text: str):
    got = record(frontend, text)
    assert list(got) == list(WANT[text])
    for name, (count, zeros, mean, spread, kurtosis) in WANT[text].items():
        assert got[name][:2] == [count, zeros], name
        near = 8 * max(spread, 1e-6) / count**0.5  # 5.6 deviations of the difference of two means
        assert got[name][2:4] == pytest.approx([mean, spread], rel=0, abs=near), name
        assert count < 500 or got[name][4] == pytest.approx(kurtosis, abs=50 / count**0.5), name
