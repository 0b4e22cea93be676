"""Arrays in device memory, and the element types that NumPy lacks."""

import numpy as np
import pytest

import hcq
import interop
from interop import elements

DEVICE = "cpu"


def test_arrays_return_unchanged(device: hcq.Device):
    values = np.arange(24, dtype=np.float64).reshape(2, 3, 4)
    made = interop.array(device, values)
    assert made.numpy().tolist() == values.tolist()
    assert made.T.numpy().tolist() == values.T.tolist()
    assert (made.stride(), made.size(1), made.numel(), made.element_size()) == ((12, 4, 1), 3, 24, 8)
    assert made.is_contiguous()
    assert not made.T.is_contiguous()


def test_copies_go_both_ways_and_clones_are_independent(device: hcq.Device):
    source, target = np.arange(5, dtype=np.int32), np.zeros(5, np.int32)
    buffer = device.alloc(20)
    interop.copy(buffer, source)
    interop.copy(target, buffer)
    assert target.tolist() == source.tolist()
    made = interop.array(device, source)
    twin = made.clone()
    made.zero_()
    assert twin.numpy().tolist() == source.tolist()
    assert made.copy_(twin).numpy().tolist() == source.tolist()


def test_wrong_copies_are_refused(device: hcq.Device):
    buffer = device.alloc(16)
    for target, source in (
        (buffer, np.zeros(5, np.int32)),
        (buffer, np.zeros((4, 2), np.int8)[:, 0]),
        (buffer, buffer),
    ):
        with pytest.raises(hcq.UsageError, match="wanted"):
            interop.copy(target, source)


def test_dlpack_objects_are_taken(device: hcq.Device):
    class Exporter:
        def __init__(self, values: np.ndarray) -> None:
            self.values = values

        def __dlpack__(self, **options: object) -> object:
            return self.values.__dlpack__(**options)

        def __dlpack_device__(self) -> tuple:
            return self.values.__dlpack_device__()

    assert interop.array(device, Exporter(np.arange(3.0))).numpy().tolist() == [0, 1, 2]


def test_bfloat16_rounds_to_even():
    values = np.array([1 + 2**-8, 1 + 3 * 2**-8, -(1 + 2**-8 + 2**-20), np.inf, np.nan], np.float32)
    back = elements.decode(elements.encode(values, "bfloat16"), "bfloat16")
    assert back[:4].tolist() == [1.0, 1 + 2**-6, -(1 + 2**-7), np.inf]
    assert np.isnan(back[4])


def test_8_bit_floats_are_stored_as_their_codes():
    codes = elements.encode(np.float32([1.0, -448.0, 500.0]), "float8_e4m3fn")
    assert codes.tolist() == [0x38, 0xFE, 0x7E]
    assert elements.decode(codes, "float8_e4m3fn").tolist() == [1.0, -448.0, 448.0]


def test_types_are_found_by_other_names():
    assert elements.resolve("torch.bfloat16") == "bfloat16"
    assert elements.resolve("fp8e5") == "float8_e5m2"
    assert elements.resolve(np.float16) == np.dtype("float16")
    with pytest.raises(hcq.UsageError, match="wanted a NumPy type"):
        elements.resolve("float3")
