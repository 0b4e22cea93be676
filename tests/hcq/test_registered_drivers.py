"""Drivers of other packages: found by entry point, opened by name, held to the same contract."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING

import pytest

from tests import children
from tests.children import ROOT

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Sequence
    from pathlib import Path

EXAMPLE = ROOT / "examples" / "custom_device"


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder with the installed example: its package and its metadata."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    points = project["entry-points"]["hcq.drivers"]
    write_metadata(tmp_path, project["name"], points)
    (tmp_path / "hcq_dma").symlink_to(EXAMPLE / "hcq_dma")
    return tmp_path


def write_metadata(folder: Path, name: str, points: dict[str, str]) -> None:
    records = folder / f"{name.replace('-', '_')}-0.1.0.dist-info"
    records.mkdir()
    (records / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1.0\n")
    lines = ["[hcq.drivers]", *(f"{point} = {target}" for point, target in points.items())]
    (records / "entry_points.txt").write_text("\n".join(lines) + "\n")


def python(folder: Path, words: Sequence[str], **settings: str) -> subprocess.CompletedProcess[str]:
    return children.python(*words, status=None, env=children.environment(folder, **settings))


@pytest.mark.slow
def test_a_registered_device_opens_by_name_and_runs(installed: Path) -> None:
    code = (
        "import hcq\n"
        "with hcq.open('dma-emu', validate=True) as device:\n"
        "    a, b = device.alloc(4096), device.alloc(4096)\n"
        "    filled = device.compute.submit(device.compute.record().fill(a, 7))\n"
        "    copies = device.copies[0]\n"
        "    copies.submit(copies.record().copy(b, a), after=[filled]).wait(timeout_s=1000)\n"
        "    print(b.host().cast('I')[1023], device.name)\n"
        "print('dma-emu' in [info.driver for info in hcq.devices()])\n"
        "print([entry.name for entry in hcq.drivers()])\n"
    )
    done = python(installed, ["-W", "error", "-c", code])
    assert done.stderr == ""
    names = ["nv", "amd", "cpu", "amd-emu", "dma-emu", "nv-emu"]
    assert done.stdout.splitlines() == ["7 dma-emu:0", "True", str(names)]


def test_a_device_without_kernels_refuses_them(installed: Path) -> None:
    code = (
        "import hcq\n"
        "with hcq.open('dma-emu') as device:\n"
        "    try:\n"
        "        device.load(hcq.KernelImage(name='k', arch='dma', code=b'x', args=(), kernarg_size=0))\n"
        "    except hcq.UnsupportedError as error:\n"
        "        print(error)\n"
    )
    done = python(installed, ["-c", code])
    assert "runs no kernels" in done.stdout, done.stderr


def test_known_names_open_without_reading_entry_points(installed: Path) -> None:
    code = (
        "import importlib.metadata, hcq\n"
        "def refuse(*_, **__): raise AssertionError('entry points were read')\n"
        "importlib.metadata.entry_points = refuse\n"
        "hcq.open('cpu').close()\n"
        "print('opened')\n"
    )
    assert python(installed, ["-c", code]).stdout == "opened\n"


def test_a_name_of_the_table_cannot_be_taken(tmp_path: Path) -> None:
    write_metadata(tmp_path, "thief", {"cpu": "nowhere:DRIVER", "nv": "nowhere:DRIVER"})
    code = "import hcq\nprint([entry.module for entry in hcq.drivers()])"
    assert "nowhere" not in python(tmp_path, ["-c", code]).stdout


def test_an_unknown_name_is_refused_with_the_list_of_drivers(installed: Path) -> None:
    done = python(installed, ["-c", "import hcq\nhcq.open('moon')"])
    assert "UsageError" in done.stderr
    assert "dma-emu" in done.stderr


@pytest.mark.slow
def test_a_registered_driver_with_an_absent_module_raises(tmp_path: Path) -> None:
    write_metadata(tmp_path, "hollow", {"hollow": "nowhere:DRIVER"})
    done = python(tmp_path, ["-c", "import hcq\nprint(len(hcq.devices()) > 0)\nhcq.open('hollow')"])
    assert done.stdout == "True\n"
    assert "UnsupportedError" in done.stderr
    assert "nowhere" in done.stderr


@pytest.mark.slow
def test_the_example_passes_the_conformance_suite(installed: Path) -> None:
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/conformance"]
    done = python(installed, words, HCQ_CONFORMANCE="dma-emu", PYTEST_ADDOPTS="")
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr
    passed = int(done.stdout.rstrip().splitlines()[-1].split(" passed")[0].split()[-1])
    assert passed >= 50, "most of what needs no kernel must run"
