"""Reports that are sent: they name no machine, fit the schema, and become rows; one page says what works."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tools import hardware_run
from tools.hardware import share, summary, tables
from tools.hardware.stage import REPOSITORY

if TYPE_CHECKING:
    from pathlib import Path

UUID = "4912e40f-f964-1d63-6c39-a1ebad9cf8d1"
RAW = bytes.fromhex(UUID.replace("-", ""))
SECRETS = {
    "uname": "Linux lab-node-7 6.8.0-generic #1 SMP x86_64",
    "host": "connection from LAB-NODE-7.example.org refused",
    "information": f"Model: NVIDIA H7\nGPU UUID: GPU-{UUID}\nBus Location: 0000:00:06.0",
    "gpu": f"Gpu(name='H7', uuid={RAW!r}, sms=132)",
    "call": f"ioctl(4) = 0x0 params 0100{RAW.hex()}0000",
    "log": "NVRM: GPU Board Serial Number: 1652624815236",
    "xid": "NVRM: Xid (PCI:0000:00:06): 31, pid=866, name=private-app, channel 0x0000000b",
    "smi": "|    0   N/A  N/A      1234      C   /opt/private/app        512MiB |",
    "kfd": "simd_count 192\nunique_id 9745612334848448864\nnum_xcc 1",
    "rocminfo": "Uuid: GPU-8fd1c2a3b4e5f607",
    "addresses": "from 192.168.17.4, fe80::1ff:fe23:4567:890a and 52:54:00:12:34:56 by annette@example.org",
    "path": "/home/annette/hcq/tools/hardware_run.py",
}
TOLD = (
    "lab-node-7", UUID, RAW.hex(), repr(RAW)[2:-1], "1652624815236", "private", "9745612334848448864",
    "8fd1c2a3b4e5f607", "192.168.17.4", "fe80::", "52:54:00:12:34:56", "annette",
)  # fmt: skip


def text_of(data: object) -> str:
    return json.dumps(data, ensure_ascii=False).replace("\\\\", "\\").lower()


def sent(**changes: Any) -> dict[str, Any]:
    """Return a report of a GPU called NVIDIA H7 that fits the schema."""
    information = {"/proc/driver/nvidia/version": "1.2.3", "information": "Model: NVIDIA H7 80GB"}
    stage = {
        "command": [], "env": {}, "limit_s": 1, "status": "passed", "reason": "", "seconds": 1,
        "returncode": 0, "tail": "",
    }  # fmt: skip
    box = {**stage, "name": "box", "facts": {"files": information}}
    return {
        "written": "2026-01-02T03:04:05Z", "dry": False, "device": "nv:0", "choices": "default",
        "kernel": "6.8", "python": "3.12", "commit": "0123456789abcdef", "seconds": 1.0, "passed": True,
        "stages": [box], **changes,
    }  # fmt: skip


def test_nothing_that_names_the_machine_is_shared_in_any_of_its_forms():
    report = {
        "stages": [{"name": "box", "facts": SECRETS, "tail": json.dumps(SECRETS)}],
        "unique_id": 9745612334848448864,
    }
    assert all(word in text_of(report) for word in map(str.lower, TOLD))
    clean = share.shared(report, names={"annette": "[user]", str(REPOSITORY): "."})
    left = [word for word in TOLD if word.lower() in text_of(clean)]
    assert left == []
    assert share.remaining(clean) == []
    assert share.shared(clean, names={}) == clean


@pytest.mark.parametrize("name", sorted(SECRETS.keys() - {"host", "call", "gpu"}))
def test_what_is_not_replaced_is_named(name: str):
    told = share.remaining({"stages": [{"name": "box", "facts": {name: SECRETS[name]}}]})
    assert told
    assert told[0].startswith(f"/stages/box/facts/{name}: ")


@pytest.mark.parametrize(
    "text",
    [
        "Sun Nov 22 23:39:55 2026", "tests/a.py::test_b[nv:0] PASSED", "PCI:0000:00:06", "96.00.da.00.0c",
        "580.159.04", "driver 1.2.3.4.5", "std::vector", "version 580.300.1.1", "Serial: 0", "hive_id 0",
        "Linux version 6.8.0",
    ],
)  # fmt: skip
def test_times_versions_and_places_are_kept(text: str):
    report = {"stages": [{"name": "box", "facts": {"line": text}}]}
    assert share.shared(report, names={}) == report


def test_versions_of_packages_are_no_addresses():
    report = {"stages": [{"name": "packages", "facts": {"cccl": "13.3.5.0"}}]}
    assert share.shared(report, names={}) == report


@pytest.mark.parametrize("name", sorted(tables.reports()))
def test_kept_reports_name_no_machine_and_fit_the_schema(name: str):
    report = tables.reports()[name]
    assert share.remaining(report) == []
    if "operations" not in name:  # a part of a run, kept under the name of the whole
        assert tables.kept_as(report).startswith(name[:15])


def test_a_report_becomes_a_file_name_and_a_row():
    assert tables.kept_as(sent()) == "2026-01-02-h7-80gb-1.2.3-01234567.json"
    row = tables.results({"a.json": sent()}).splitlines()[-1]
    assert row == "| [a](a.json) | NVIDIA H7 80GB, 1.2.3 | 01234567 | - | - |"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"passed": "yes"}, "passed: 'yes' is not of type 'boolean'"),
        ({"stages": [{"name": "box"}]}, "stages/0: 'command' is a required property"),
        ({"kernel": "6.8 of 10.1.2.3"}, "/kernel: '6.8 of 10.1.2.3'"),
        ({"device": "nv-emu"}, "saw one of nv-emu"),
        ({"dry": True}, "a dry run"),
        ({"stages": []}, "saw '', '', '0123456789abcdef'"),
    ],
)
def test_a_report_that_cannot_be_kept_is_refused_with_the_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, Any], words: str
):
    file = tmp_path / "shared.json"
    file.write_text(json.dumps(sent(**changes)))
    assert tables.main(["--add", str(file)]) == tables.REFUSED
    assert words in capsys.readouterr().err


def test_a_run_writes_the_shared_report_and_prints_the_page_last(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    folders = ["--out", str(tmp_path / "out"), "--work", str(tmp_path / "work")]
    hardware_run.main(["--device", "nv-emu", "--share", "--only", "packages", *folders])
    report = json.loads((tmp_path / "out/shared.json").read_text())
    assert [stage["name"] for stage in report["stages"]] == ["packages"]
    assert str(REPOSITORY) not in text_of(report)
    said = capsys.readouterr().err
    assert f"send: {tmp_path / 'out/shared.json'}" in said
    assert said.index("works:") < said.index("does not work") < said.index("send:")


def test_a_run_that_is_interrupted_says_what_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(hardware_run, "run_stages", interrupted)
    folders = ["--out", str(tmp_path / "out"), "--work", str(tmp_path / "work")]
    with pytest.raises(KeyboardInterrupt):
        hardware_run.main(["--device", "nv-emu", "--share", *folders])
    assert (tmp_path / "out/shared.json").exists()
    assert "works:\n  nothing" in capsys.readouterr().err


def test_the_first_failure_and_its_cure_stand_last():
    failed = {
        "name": "ladder", "status": "failed", "facts": {"rungs": {"1 default": "no"}, "choices": "default"},
        "reason": "rung 1, nodes open: DriverError: open /dev/kfd failed; hint: join the group render\n"
        "skipped: rungs 2",
    }  # fmt: skip
    row = {
        "stage": "ladder",
        "log": "ladder.log in evidence.tar.gz",
        "again": "python -m tools.hardware_run --only ladder",
    }
    later = {"name": "conformance", "status": "died: SIGSEGV", "reason": "", "facts": {}}
    report = sent(stages=[failed, later], failed=[row])
    assert summary.page(report).splitlines()[-6:] == [
        "first failure: ladder, failed",
        "  rung 1, nodes open: DriverError: open /dev/kfd failed",
        "  skipped: rungs 2",
        "  log: ladder.log in evidence.tar.gz",
        "  again: python -m tools.hardware_run --only ladder",
        "  cure: join the group render",
    ]
