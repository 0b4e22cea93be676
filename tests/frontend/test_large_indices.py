"""Index tensors into axes and products of axes of more than 2**31 elements."""

from __future__ import annotations

import pytest

from frontend import Tensor, dtypes
from hcq.config import override

LONG = 2**31 + 8


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint16", "uint32"])
def test_an_index_of_any_dtype_reads_an_axis_of_more_than_two_to_31(dtype: str):
    x = Tensor.full((LONG,), 3, dtype="int8")
    places = [5, 0] if dtype[0] == "u" else [5, -1]
    assert x[Tensor(places, dtype=dtype)].tolist() == [3, 3]
    places = Tensor([LONG - 1, -LONG, LONG], dtype="int64")
    assert x.gather(0, places[:1]).tolist() == [3]
    assert x[places[:2]].tolist() == [3, 3]


def test_two_indices_address_an_element_beyond_two_to_31():
    n = 70_000
    row, column = Tensor([n - 1, 3, -1]), Tensor([n - 2, -1, 0])
    assert row.dtype is dtypes.int64
    x = Tensor.arange(n).reshape(n, 1).expand(n, n)
    y = Tensor.arange(n).reshape(1, n).expand(n, n)
    assert x[row, column].tolist() == [n - 1, 3, n - 1]
    assert y[row, column].tolist() == [n - 2, n - 1, 0]


@pytest.mark.parametrize("how", ["scatter_reduce", "index_reduce"])
def test_an_index_beyond_32_bits_is_written_nowhere(how: str):
    x, values = Tensor([1.0, 2.0, 3.0]), Tensor([5.0, 7.0])
    index = (Tensor([0, 1], dtype="int64") * 2**32 + 1).realize()
    with override(validate=False):
        assert getattr(x, how)(0, index, values, "prod").tolist() == [1.0, 10.0, 3.0]


def test_places_beyond_two_to_31_are_counted_in_64_bits():
    assert Tensor.arange(LONG).searchsorted(Tensor([2**31 + 3])).tolist() == [2**31 + 3]
