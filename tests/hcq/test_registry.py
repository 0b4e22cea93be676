"""Devices by name, and configuration."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import hcq
from hcq.config import _home_of_user, override, read
from hcq.errors import UnsupportedError, UsageError
from hcq.registry import DRIVERS, DriverEntry, drivers, parse
from tests.children import environment, python


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
def test_invalid_names_are_refused(name: str):
    with pytest.raises(UsageError, match="device"):
        parse(name)


def test_an_absent_driver_is_an_unsupported_error():
    entry = DriverEntry("moon", "drivers.moon", "DRIVER", hardware=True)
    assert not entry.present()
    with pytest.raises(UnsupportedError, match="'moon' is not part of this installation"):
        entry.driver()


def test_a_driver_below_an_absent_package_is_absent():
    assert not DriverEntry("moon", "drivers.moon.emu", "DRIVER", hardware=False).present()


def test_emulated_gpus_are_marked():
    assert [entry.name for entry in drivers() if entry.driver().emulated] == ["amd-emu", "nv-emu"]


def test_auto_is_the_configured_device_without_fallback():
    with override(device="cpu:99"), pytest.raises((UsageError, UnsupportedError)):
        hcq.open()
    with override(device="nowhere"), pytest.raises(UsageError, match="no device is called 'nowhere'"):
        hcq.open()


@pytest.mark.parametrize(
    ("name", "meant"),
    [("nv-em", "nv-emu"), ("amd-emulated", "amd-emu"), ("cp", "cpu"), ("nv-emu+checked", "nv-emu:checked")],
)
def test_an_unknown_name_brings_the_nearest_driver(name: str, meant: str):
    with pytest.raises(UsageError, match=f"hint: did you mean '{meant}'"):
        hcq.open(name)


def test_the_table_has_real_gpus_first():
    kinds = [entry.hardware for entry in DRIVERS]
    assert kinds == sorted(kinds, reverse=True)


def test_every_exported_name_exists():
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


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("HCQ_VALIDATE", "yes"),
        ("DEBUG", "-1"),
        ("HCQ_SEED", "x"),
        ("HCQ_TRACE", "/nowhere/trace.json"),
        ("HCQ_TRACE", "/"),
        ("HCQ_COUNTERS", "/nowhere/counters.json"),
        ("HCQ_CRASH", "/proc/1/nowhere/x"),
        ("HCQ_EMU_REPORT", "/nowhere/report.json"),
        ("HCQ_CACHE", "off"),
        ("HCQ_CACHE", "./cache"),
    ],
)
def test_a_setting_that_cannot_be_read_is_refused_by_name(name: str, text: str):
    with pytest.raises(UsageError, match=f"{name} must be"):
        read({name: text})


def test_a_file_of_a_setting_that_may_not_be_written_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("os.access", lambda _path, _mode: False)
    with pytest.raises(UsageError, match=r"HCQ_CRASH must be .* may not be written"):
        read({"HCQ_CRASH": "report.json"})


def test_counters_that_are_switched_off_write_no_file():
    assert read({"HCQ_COUNTERS": "0"}).counters == ""


def test_counters_that_are_printed_need_no_file(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("os.access", lambda _path, _mode: False)
    assert read({"HCQ_COUNTERS": "1"}).counters == "1"


def test_texts_replace_settings_as_in_the_environment():
    with override(cpu_devices="3", validate="1", seed="0x10") as settings:
        assert (settings.cpu_devices, settings.validate, settings.seed) == (3, True, 16)
    for name, text in (("cpu_devices", "two"), ("validate", "yes")):
        with pytest.raises(UsageError, match=f"HCQ_{name.upper()} must be"), override(**{name: text}):
            pass


@pytest.mark.parametrize(
    ("environment", "home_of_user", "folder"),
    [
        ({"HCQ_CACHE": "/c"}, "", "/c"),
        ({"HCQ_CACHE": "/c", "HOME": "", "XDG_CACHE_HOME": "/x"}, "/home/me", "/c"),
        ({"XDG_CACHE_HOME": "/x"}, "", "/x/hcq"),
        ({"XDG_CACHE_HOME": "relative", "HOME": "/home/me"}, "", "/home/me/.cache/hcq"),
        ({"HOME": "/home/me"}, "/home/other", "/home/me/.cache/hcq"),
        ({"HOME": ""}, "/home/me", "/home/me/.cache/hcq"),
        ({}, "/home/me", "/home/me/.cache/hcq"),
        ({}, "", None),
        ({"HOME": ""}, "/", None),
        ({"HOME": "/"}, "/home/me", None),
    ],
)
def test_the_cache_folder_follows_environment_and_home(
    environment: dict[str, str], home_of_user: str, folder: str | None
):
    found = read(environment, home_of_user=lambda: home_of_user).cache
    assert found == (None if folder is None else Path(folder))


def test_without_a_home_one_warning_is_issued():
    code = (
        "import warnings\n"
        "from hcq import config\n"
        "with warnings.catch_warnings(record=True) as told:\n"
        "    warnings.simplefilter('always')\n"
        "    found = [config.config().cache for _ in range(3)]\n"
        "print(found, [w.category.__name__ for w in told])\n"
    )
    done = python("-c", code, env={"HOME": "/"})
    assert done.stdout.strip() == "[None, None, None] ['CacheWarning']"


def test_a_user_that_the_system_does_not_list_has_no_home():
    assert _home_of_user(4_000_000_011) == ""


def test_tensors_load_when_first_asked_for():
    program = (
        "import sys, hcq\nassert 'frontend' not in sys.modules\nprint(hcq.Tensor.__module__, hcq.nn.__name__)"
    )
    told = subprocess.check_output([sys.executable, "-c", program], env=environment(), text=True)
    assert told.split() == ["frontend.tensor", "frontend.nn"]
    assert {"Tensor", "nn"} <= set(dir(hcq))
