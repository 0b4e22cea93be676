"""Devices by name, and configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

import hcq
from hcq.config import override, read
from hcq.errors import UnsupportedError, UsageError
from hcq.registry import DRIVERS, DriverEntry, parse


@pytest.mark.parametrize(
    ("name", "driver", "index", "variant"),
    [
        ("cpu", "cpu", 0, None), ("nv:1", "nv", 1, None), ("nv:sm_90", "nv", 0, "sm_90"),
        ("nv:sm_90:2", "nv", 2, "sm_90"),
    ],
)  # fmt: skip
def test_names_are_driver_variant_and_index(name: str, driver: str, index: int, variant: str | None):
    entry, number, text = parse(name)
    assert (entry.name, number, text) == (driver, index, variant)


@pytest.mark.parametrize("name", ["gpu", "", "cpu:0:1:2", "nv:a:b", "cpu::"])
def test_names_that_are_none_are_refused(name: str):
    with pytest.raises(UsageError, match="device"):
        parse(name)


def test_a_driver_that_is_absent_is_unsupported_and_says_so():
    entry = DriverEntry("moon", "drivers.moon", "DRIVER", hardware=True)
    assert not entry.present()
    with pytest.raises(UnsupportedError, match="'moon' is not part of this installation"):
        entry.driver()


def test_absence_below_an_absent_package_is_absence():
    assert not DriverEntry("moon", "drivers.moon.emu", "DRIVER", hardware=False).present()


def test_auto_is_what_the_configuration_names_and_never_falls_back():
    with override(device="cpu:99"), pytest.raises((UsageError, UnsupportedError)):
        hcq.open()
    with override(device="nowhere"), pytest.raises(UsageError, match="no device is called 'nowhere'"):
        hcq.open()


def test_the_table_has_real_gpus_first():
    kinds = [entry.hardware for entry in DRIVERS]
    assert kinds == sorted(kinds, reverse=True)


def test_every_exported_name_is_there():
    for name in hcq.__all__:
        assert getattr(hcq, name) is not None
    assert set(hcq.__all__) <= set(dir(hcq))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = hcq.nothing


def test_settings_are_read_from_an_environment():
    config = read(
        {"HCQ_DEVICE": "cpu", "HCQ_VALIDATE": "1", "HCQ_SEED": "7", "DEBUG": "2", "HCQ_CACHE": "/c"}
    )
    assert (config.device, config.validate, config.seed, config.debug, config.cache) == (
        "cpu",
        True,
        7,
        2,
        Path("/c"),
    )


@pytest.mark.parametrize(("name", "text"), [("HCQ_VALIDATE", "yes"), ("DEBUG", "-1"), ("HCQ_SEED", "x")])
def test_a_setting_that_cannot_be_read_is_refused_by_name(name: str, text: str):
    with pytest.raises(UsageError, match=f"{name} must be"):
        read({name: text})
