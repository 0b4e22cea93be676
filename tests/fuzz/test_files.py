"""Changed files of every kind are read or refused by errors of the project; more by `tests.fuzz.files`."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from tests.fuzz import files
from tests.fuzz.files import KINDS, changed, mutant, reshaped, untyped, whole

if TYPE_CHECKING:
    from collections.abc import Iterator

FOUND = {
    "safetensors": [11_830],  # a size of 2^63 beside a 0
    "captured": [10_885, 10_960, 13_127],  # an infinite size under a digest that fits
    "cubin": [21, 29, 31, 46, 125],  # a name that is no UTF-8, no symbol of the kernel, code without memory
    "amdgpu": [83],  # metadata with a number where a list belongs
}
"""Seeds that earlier versions answered with errors of Python."""


@pytest.fixture(scope="module", autouse=True)
def _closed() -> Iterator[None]:
    """Close the devices that the readers opened."""
    yield
    for name in ("cpu", "nv-emu", "amd-emu"):
        files._device(name).close()
    files._device.cache_clear()


@pytest.mark.parametrize("kind", KINDS)
def test_changed_files_are_read_or_refused(kind: str) -> None:
    assert not untyped(0, 60, kind)
    for seed in FOUND.get(kind, ()):
        assert not untyped(seed, 1, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_whole_files_are_read_and_most_changes_matter(kind: str) -> None:
    refused = 0
    for data in whole(kind):
        try:
            KINDS[kind][2](data)
        except files.hcq.UnsupportedError:
            refused += 1  # a checkpoint that is code
    assert refused < len(whole(kind))
    assert len({mutant(seed, kind) for seed in range(30)}) > 20


def test_an_error_that_is_not_the_projects_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(data: bytes) -> None:
        raise LookupError(len(data))

    monkeypatch.setitem(KINDS, "planted", (lambda: (b"12345678",), changed, read))
    assert "LookupError" in untyped(0, 1, "planted")[0]
    whole.cache_clear()


def test_one_part_of_json_is_replaced_removed_or_doubled() -> None:
    value = {"a": [1, {"b": "c"}], "d": [2, 3]}
    made = [reshaped(random.Random(seed), value) for seed in range(50)]
    assert value == {"a": [1, {"b": "c"}], "d": [2, 3]}
    assert sum(one != value for one in made) > 40
