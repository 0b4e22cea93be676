"""The live view: what a process publishes, what is left of killed ones, and sensors."""

from __future__ import annotations

import json
import mmap
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from hcq import published
from hcq.errors import UsageError
from tests.children import python
from tests.limits import HANG_S
from tools import top

if TYPE_CHECKING:
    from pathlib import Path

CHILD = """
import hcq, sys
with hcq.open("cpu") as device:
    kept = device.alloc(1 << 20, label="weights")
    gate = device.signal(host_set=True, label="gate")
    point = device.compute.submit(device.compute.record().wait(gate, 1).fill(kept, 1))
    sys.stdin.read()
    gate.value = 1
    point.wait()
"""


def test_the_view_shows_the_queues_and_memory_of_another_process(capsys: pytest.CaptureFixture[str]) -> None:
    environment = {**os.environ, "HCQ_TOP": "1"}
    with subprocess.Popen([sys.executable, "-c", CHILD], stdin=subprocess.PIPE, env=environment) as child:
        end = time.monotonic() + HANG_S
        while time.monotonic() < end and child.poll() is None:
            assert top.main(["--json"]) == 0
            seen = [p for p in json.loads(capsys.readouterr().out)["processes"] if p["pid"] == child.pid]
            if seen and seen[0]["devices"] and seen[0]["devices"][0]["queues"][0]["waits"]:
                break
            time.sleep(0.02)
        (device,) = seen[0]["devices"]
        assert device["device"] == "cpu:0"
        assert "gate" in device["queues"][0]["waits"][0]
        assert device["memory"]["used"] >= 1 << 20
        assert top.main(["--once"]) == 0
        assert "compute 0 of cpu:0: 0 done, 1 left" in capsys.readouterr().out
        child.communicate(b"")
    assert child.returncode == 0
    assert not (published.folder() / str(child.pid)).exists()


def test_a_forked_child_leaves_the_file_of_its_parent() -> None:
    code = (
        "import hcq, os, sys\nfrom hcq import published\n"
        "with hcq.open('cpu'):\n"
        "    child = os.fork()\n"
        "    if not child:\n"
        "        sys.exit(0)\n"
        "    os.waitpid(child, 0)\n"
        "    print((published.folder() / str(os.getpid())).exists())\n"
    )
    environment = {**os.environ, "HCQ_TOP": "1"}
    done = python("-c", code, env=environment)
    assert done.stdout == "True\n"


def test_a_folder_that_others_may_write_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(published, "folder", lambda: tmp_path)
    tmp_path.chmod(0o777)
    with pytest.raises(UsageError, match=r"not this user's alone: mode 40777(.|\n)*hint:"):
        published.Publisher().start()
    assert list(tmp_path.iterdir()) == []


def test_files_of_killed_processes_are_removed_and_torn_ones_left_out(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        pass
    (tmp_path / str(gone.pid)).write_bytes(b"x")
    mine = tmp_path / str(os.getpid())
    mine.write_bytes(bytes(published.SIZE))
    with mine.open("r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
        assert list(published.read_all(tmp_path)) == []  # nothing is written yet
        published.write(memory, b'{"pid": 1}')
        assert list(published.read_all(tmp_path)) == [{"pid": 1}]
        memory[0] = 1  # a writer is at work, and stays there
        assert list(published.read_all(tmp_path)) == []
    assert [path.name for path in tmp_path.iterdir()] == [mine.name]


def test_sensors_that_cannot_be_read_are_left_out(tmp_path: Path) -> None:
    device = tmp_path / "card0" / "device"
    (device / "hwmon" / "hwmon3").mkdir(parents=True)
    (device / "gpu_busy_percent").write_text("37\n")
    (device / "hwmon" / "hwmon3" / "power1_average").write_text("41000000\n")
    (device / "hwmon" / "hwmon3" / "temp1_input").write_text("off\n")
    (tmp_path / "card1" / "device").mkdir(parents=True)
    assert list(top.cards(tmp_path)) == [{"card": "card0", "load": "37%", "power": "41 W"}]
    assert list(top.lines([], [])) == ["no process publishes: start one with HCQ_TOP=1"]
