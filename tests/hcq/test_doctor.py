"""`python -m hcq`: what it finds in tables that are given to it, and what it prints."""

from __future__ import annotations

import errno
import json
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import pytest

from drivers.amd import AmdDriver
from drivers.kernel import fail
from drivers.nv import NvDriver
from drivers.nv.refusals import unknown_branch
from hcq.__main__ import main
from hcq.config import Config, variables
from hcq.doctor import SharedName, examine
from hcq.driver import DeviceInfo
from hcq.errors import UnsupportedError, UsageError
from tests.children import python
from tests.drivers.amd.opened import emulated

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def info(driver: str, index: int = 0, units: int = 0) -> DeviceInfo:
    return DeviceInfo(
        driver=driver, index=index, name="Model T", arch="t1", vram_bytes=3 << 30, compute_queues=2,
        copy_queues=1, compute_units=units,
    )  # fmt: skip


@dataclass
class Wrench:
    name: str = "assembler"
    cure: str = "pip install wrench"
    found: str = ""

    def version(self) -> str:
        return self.found


@dataclass
class Vendor:
    """A driver that lists a number of devices, or refuses to open one."""

    name: str
    devices: int = 0
    error: Exception | None = None
    units: int = 0
    tools: tuple[Wrench, ...] = ()

    def enumerate(self) -> list[DeviceInfo]:
        return [info(self.name, index, self.units) for index in range(self.devices)]

    def open(self, *_which: object) -> Any:
        raise self.error or UsageError("no such device")


@dataclass
class Entry:
    """A driver entry without a module."""

    name: str
    make: Callable[[], Any]
    hardware: bool = False

    def driver(self) -> Any:
        return self.make()


def entry(
    name: str, devices: int = 0, error: Exception | None = None, *, units: int = 0,
    tools: tuple[Wrench, ...] = (), **more: Any,
) -> Any:  # fmt: skip
    return Entry(name, lambda: Vendor(name, devices, error, units, tools), **more)


def diagnosed(
    *entries: Any, environment: dict[str, str] | None = None, requirements: tuple[str, ...] = (),
    owners: dict[str, list[str]] | None = None,
) -> Any:  # fmt: skip
    return examine(
        entries=entries,
        environment={"HCQ_CACHE": "/nowhere/hcq", **(environment or {})},
        version_of={"hcq": "1.2", "numpy": "2.0"}.get,
        requirements=requirements,
        owners=owners or {},
    )


def test_every_device_of_every_driver_is_listed_by_the_name_that_opens_it():
    report = diagnosed(entry("gpu", 2, hardware=True), entry("cpu", 1))
    assert [(device.name, device.present) for device in report.devices] == [
        ("gpu:0", True), ("gpu:1", True), ("cpu:0", True),
    ]  # fmt: skip
    assert report.usable


def test_compute_units_are_shown_where_they_are_known():
    known, unknown = diagnosed(entry("gpu", 1, units=132), entry("cpu", 1)).devices
    assert "132 compute units" in known.description
    assert "compute units" not in unknown.description


def test_the_error_of_opening_becomes_what_is_missing_and_its_hint_the_cure():
    (found,) = diagnosed(entry("gpu", error=UnsupportedError("no such card\nhint: buy one"))).devices
    assert (found.name, found.present, found.missing, found.cure) == ("gpu", False, "no such card", "buy one")


class Locked:
    """An operating system that refuses to open device nodes."""

    def __init__(self, number: int) -> None:
        self.number = number

    def open(self, *_path: object) -> int:
        fail("open", self.number)

    def list_dir(self, path: str) -> list[str]:
        fail("listdir", errno.ENOENT, path)

    def close(self, fd: int) -> None:
        raise AssertionError(f"{fd} was never opened")


@pytest.mark.parametrize(
    ("number", "cure"),
    [
        (errno.ENOENT, "modprobe"),
        (errno.EACCES, "group"),
        (errno.EPERM, "container"),
        (errno.ENXIO, "modprobe"),
    ],
)
def test_a_node_that_cannot_be_opened_has_a_cure(number: int, cure: str):
    driver = NvDriver("nv", lambda _variant: Locked(number))  # type: ignore[arg-type]
    (found,) = diagnosed(Entry("nv", lambda: driver, hardware=True)).devices
    assert errno.errorcode[number] in found.missing
    assert "/dev/nvidiactl" in found.missing
    assert cure in found.cure


KFD, RENDER = "/dev/kfd", "/dev/dri/renderD128"


@pytest.mark.parametrize(
    ("script", "missing", "cure"),
    [
        ({f"open {KFD}": errno.ENOENT}, (KFD, "ENOENT"), "modprobe amdgpu"),
        ({f"open {KFD}": errno.EACCES}, (KFD, "EACCES"), "usermod -aG render"),
        ({f"open {KFD}": errno.EPERM}, (KFD, "EPERM"), "--group-add render"),
        ({f"open {RENDER}": errno.EACCES}, (RENDER, "EACCES"), "usermod -aG render"),
        ("gfx1030", ("gfx1030", "compile target only"), "driven are gfx942"),
        ("gfx1300", ("gfx_target_version 130000",), "driven are gfx942"),
        ({"list */nodes": ["0"]}, ("the kernel's topology lists no GPU",), "vfio-pci"),
    ],
)
def test_an_amd_gpu_that_cannot_be_opened_has_a_cure(
    script: str | dict[str, Any], missing: tuple[str, ...], cure: str
):
    kernel = emulated(script) if isinstance(script, str) else emulated(table=script)
    (found,) = diagnosed(Entry("amd", lambda: AmdDriver("amd", lambda _: kernel), hardware=True)).devices
    assert (found.name, found.present) == ("amd", False)
    assert all(word in found.missing for word in missing), found.missing
    assert cure in found.cure


def test_each_amd_gpu_that_can_be_opened_is_listed_with_its_target():
    kernel = emulated("gfx1100", "gfx90a", "gfx942")
    found = diagnosed(Entry("amd", lambda: AmdDriver("amd", lambda _: kernel), hardware=True)).devices
    present = [device for device in found if device.present]
    assert [(device.name, device.arch) for device in present] == [("amd:0", "gfx1100"), ("amd:2", "gfx942")]
    assert "304 compute units" in present[1].description


@pytest.mark.parametrize(
    "gpus", [("gfx90a", "gfx1100"), ("gfx1100", "gfx90a"), ("gfx1300", "gfx1100", "gfx90a")]
)
def test_a_gpu_that_is_refused_is_named_beside_one_that_opens(gpus: tuple[str, ...]):
    kernel = emulated(*gpus)
    found = diagnosed(Entry("amd", lambda: AmdDriver("amd", lambda _: kernel), hardware=True)).devices
    assert [device.name for device in found] == [f"amd:{index}" for index in range(len(gpus))]
    assert [device.present for device in found] == [name == "gfx1100" for name in gpus]
    refused = [device for device in found if not device.present]
    assert all("gfx" in device.missing and "driven are" in device.cure for device in refused)


def test_an_unknown_branch_of_the_kernel_driver_is_missing_its_branch():
    (found,) = diagnosed(entry("nv", error=unknown_branch("999.1"))).devices
    assert "999.1" in found.missing
    assert "branch" in found.cure


def test_a_module_that_a_driver_lacks_is_named_with_its_install_command():
    def broken() -> Any:
        raise ModuleNotFoundError("No module named 'cffi.api'", name="cffi.api")

    (found,) = diagnosed(Entry("cpu", broken)).devices
    assert not found.present
    assert found.cure == "pip install cffi"


def test_a_present_device_without_its_assembler_lacks_kernels():
    (found,) = diagnosed(entry("nv", 1, tools=(Wrench(),))).devices
    assert found.present
    assert "assembler" in found.missing
    assert found.cure == "pip install wrench"
    (whole,) = diagnosed(entry("nv", 1, tools=(Wrench(found="13.0"),))).devices
    assert (whole.missing, whole.cure) == ("", "")


@pytest.mark.parametrize(
    ("entries", "chosen", "default"),
    [
        ([entry("nv", 1, hardware=True), entry("cpu", 1)], "", "nv"),
        ([entry("cpu", 1), entry("nv-emu", 1)], "", "cpu"),
        ([entry("nv", 1, hardware=True), entry("cpu", 1)], "nv-emu:sm_80", "nv-emu:sm_80"),
        ([entry("nv", error=UnsupportedError("none"))], "", ""),
        ([entry("cpu", 1)], "gpu9000", ""),
    ],
)
def test_the_default_is_the_choice_of_open(entries: list[Any], chosen: str, default: str):
    report = diagnosed(*entries, environment={"HCQ_DEVICE": chosen} if chosen else None)
    assert report.default.name == default
    assert report.default.reason


def test_the_table_of_variables_covers_every_field_of_the_configuration():
    assert [variable.field for variable in variables()] == [item.name for item in fields(Config)]
    assert len({variable.name for variable in variables()}) == len(variables())
    assert all(variable.meaning for variable in variables())


def test_settings_show_their_values():
    report = diagnosed(entry("cpu", 1), environment={"HCQ_SEED": "7"})
    (seed,) = [item for item in report.settings if item.name == "HCQ_SEED"]
    assert (seed.value, seed.default) == ("7", "0")
    (jit,) = [item for item in report.settings if item.name == "JIT"]
    assert (jit.value, jit.default) == (None, "1")


def test_settings_that_cannot_be_read_leave_nothing_usable():
    report = diagnosed(entry("cpu", 1), environment={"HCQ_SEED": "x"})
    assert "HCQ_SEED" in report.settings_error
    assert not report.usable
    assert main([], diagnose=lambda: report) == 1


def test_the_cache_is_counted(tmp_path: Path):
    from hcq.store import key_of, store

    folder = tmp_path / "cache"
    store(folder).put("kind", key_of("a"), b"x" * 100)
    report = diagnosed(entry("cpu", 1), environment={"HCQ_CACHE": str(folder), "HCQ_CACHE_BYTES": "1000"})
    assert (report.cache.folder, report.cache.entries, report.cache.limit) == (str(folder), 1, 1000)
    assert report.cache.size > 100


def test_a_cache_that_cannot_be_kept_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "file").touch()
    report = diagnosed(entry("cpu", 1), environment={"HCQ_CACHE": str(tmp_path / "file" / "cache")})
    assert report.cache.error == f"{tmp_path}/file is no folder"
    monkeypatch.setattr("os.access", lambda _path, _mode: False)
    report = diagnosed(entry("cpu", 1), environment={"HCQ_CACHE": str(tmp_path)})
    assert report.cache.error == f"{tmp_path} may not be written by this user"

    def refused(_folder: object) -> None:
        raise PermissionError(13, "Permission denied", str(tmp_path))

    monkeypatch.setattr("os.scandir", refused)
    report = diagnosed(entry("cpu", 1), environment={"HCQ_CACHE": str(tmp_path)})
    assert "Permission denied" in report.cache.error


def test_packages_are_those_needed_at_run_time():
    lines = ("numpy>=1.26", "cffi>=1.17", "nvidia-nvjitlink>=13; extra == 'nv'", "ruff; extra == 'dev'",
             "hcq[nv,plot]; extra == 'test'")  # fmt: skip
    packages = diagnosed(entry("cpu", 1), requirements=lines).packages
    assert [package.name for package in packages] == ["numpy", "cffi", "nvidia-nvjitlink"]
    cures = [package.cure for package in packages]
    assert cures == ["", "pip install 'cffi>=1.17'", "pip install 'nvidia-nvjitlink>=13'"]


def test_names_that_other_distributions_own_are_warnings_with_a_cure(capsys: pytest.CaptureFixture[str]):
    owners = {"frontend": ["hcq", "django-frontend", "django-frontend"], "hcq": ["HCQ"], "numpy": ["numpy"]}
    report = diagnosed(entry("cpu", 1), owners=owners)
    cure = "pip uninstall django-frontend, or a virtual environment for hcq alone"
    assert report.shared == (SharedName("frontend", ("django-frontend",), cure),)
    assert main([], diagnose=lambda: report) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert f"frontend of django-frontend: `import frontend` may find it. Cure: {cure}" in printed


def test_the_exit_status_is_zero_if_a_device_opens(capsys: pytest.CaptureFixture[str]):
    broken = entry("gpu", error=UnsupportedError("no such card\nhint: buy one"))
    assert main([], diagnose=lambda: diagnosed(broken, entry("cpu", 1))) == 0
    shown = capsys.readouterr().out
    assert "no such card" in shown
    assert "buy one" in shown
    assert main([], diagnose=lambda: diagnosed(broken)) == 1


def test_json_is_one_object_with_everything(capsys: pytest.CaptureFixture[str]):
    assert main(["--json"], diagnose=lambda: diagnosed(entry("cpu", 1), requirements=("numpy",))) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["usable"] is True
    assert shown["devices"][0]["name"] == "cpu:0"
    assert shown["devices"][0]["vram_bytes"] == 3 << 30
    assert {item["name"] for item in shown["settings"]} == {variable.name for variable in variables()}


@pytest.mark.slow
def test_the_command_finds_the_cpu(tmp_path: Path):
    done = python("-m", "hcq", "--json", HCQ_CACHE=str(tmp_path))
    assert "cpu:0" in [device["name"] for device in json.loads(done.stdout)["devices"] if device["present"]]
