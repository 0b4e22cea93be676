"""The hardware run: its report for every outcome of a stage, and the whole run without a GPU."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tarfile
import time
import zipfile
from typing import TYPE_CHECKING, Any

import pytest

from tests.children import python
from tests.limits import HANG_S
from tools import hardware_run
from tools.arguments import REFUSED
from tools.hardware import box, machine, summary
from tools.hardware.stage import REPOSITORY, Run, Stage, Timing

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def made(tmp_path: Path) -> Callable[..., Run]:
    """Make a run in folders of the test, with the shell script `python` instead of the interpreter."""

    def make(*arguments: str, python: str = "", timing: Timing | None = None, kind: type[Run] = Run) -> Run:
        folders = ["--out", str(tmp_path / "out"), "--work", str(tmp_path / "work")]
        options = hardware_run.parse(["--dry", "--device", "nv", *folders, *arguments])
        if not python:
            return kind(options, timing=timing)
        script = tmp_path / "python"
        script.write_text("#!/bin/sh\n" + python)
        script.chmod(0o755)
        return kind(options, timing=timing, python=str(script))

    return make


def report_of(run: Run) -> dict[str, list[dict[str, object]]]:
    """Return the report, and assert that the folder has nothing else but the archive."""
    assert sorted(path.name for path in run.out.iterdir()) == ["evidence.tar.gz", "report.json"]
    told: dict[str, list[dict[str, object]]] = json.loads((run.out / "report.json").read_text())
    return told


def over_after(log: Path, words: str) -> Timing:
    """Return a timing whose clock passes every limit when a log ends with `words`."""
    now = time.monotonic()

    def monotonic() -> float:
        nonlocal now
        if log.exists() and log.read_text().endswith(words):
            now += 1e6  # at every call: the first may be the start of the limit
        return now

    return Timing(monotonic, beat_s=0.1, end_s=100.0)


class Recorded(Run):
    """A run that records its stages instead of running them."""

    def __init__(self, *options: Any, **names: Any) -> None:
        super().__init__(*options, **names)
        self.seen: list[tuple[str, float]] = []
        """(stage, seconds reserved then)."""
        self.commands: dict[str, str] = {}

    def run(self, stage: Stage, explain: object = None) -> Stage:  # noqa: ARG002 - that of `Run.run`
        """Record a stage."""
        self.seen.append((stage.name, self.reserve_s))
        self.commands[stage.name] = " ".join(stage.command)
        return stage

    def skip(self, name: str, why: str) -> None:  # noqa: ARG002 - that of `Run.skip`
        """Record a skipped stage."""
        self.seen.append((name, self.reserve_s))


@pytest.mark.slow
def test_the_whole_hardware_run_works_without_hardware(tmp_path: Path):
    out, work = tmp_path / "out", tmp_path / "work"
    arguments = ["--dry", "--out", str(out), "--work", str(work), "--patience", "100"]
    assert hardware_run.main(arguments) == 0
    report = json.loads((out / "report.json").read_text())
    assert report["passed"]
    assert [s["name"] for s in report["stages"]] == [
        name for name in hardware_run.NAMES if name != "wheels"
    ]  # fmt: skip


def test_a_failed_stage_keeps_the_reports_of_the_others(tmp_path: Path, made: Callable[..., Run]):
    run = made(timing=over_after(tmp_path / "work/logs/sleeps.log", "begun\n"))
    words = {
        "segfaults": "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
        "fails": "raise SystemExit(3)",
        "passes": "print('done')",
        "sleeps": "import time; print('begun', flush=True); time.sleep(1000)",
    }
    for name, code in words.items():
        run.run(Stage(name, [sys.executable, "-S", "-c", code], 4))
    report = report_of(run)
    told = {stage["name"]: stage["status"] for stage in report["stages"]}
    hung = "hung: killed after 4 s; --patience X gives it more"
    assert list(told.values()) == ["died: SIGSEGV", "failed", "passed", hung]
    assert not report["passed"]
    assert report["stages"][-1]["tail"] == "begun\n"
    with tarfile.open(run.out / "evidence.tar.gz") as archive:
        assert {f"{name}.log" for name in words} <= set(archive.getnames())


def test_a_run_that_is_killed_leaves_the_report_of_the_stage_that_ran(tmp_path: Path):
    out, work = tmp_path / "out", tmp_path / "work"
    code = f"""
from tools import hardware_run
from tools.arguments import REFUSED
from tools.hardware.stage import Run, Stage, Timing
options = hardware_run.parse(["--dry", "--out", {str(out)!r}, "--work", {str(work)!r}])
run = Run(options, timing=Timing(beat_s=0.1))
run.run(Stage("long", ["sh", "-c", "echo $$; exec sleep 600"], 500))
"""
    child = subprocess.Popen([sys.executable, "-S", "-c", code], cwd=REPOSITORY, env={"PYTHONPATH": "."})
    report, deadline = out / "report.json", time.monotonic() + HANG_S
    tail = ""
    while not (tail and (out / "evidence.tar.gz").exists()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
        stages = json.loads(report.read_text())["stages"] if report.exists() else []
        tail = stages[0]["tail"] if stages else ""
    child.kill()
    child.wait()
    os.kill(int(tail), signal.SIGKILL)
    told = json.loads(report.read_text())
    assert [(s["name"], s["status"], s["tail"]) for s in told["stages"]] == [("long", "running", tail)]
    with tarfile.open(out / "evidence.tar.gz") as archive:
        assert archive.getnames() == ["long.log"]


def test_a_bench_cut_short_keeps_its_rows(tmp_path: Path, made: Callable[..., Run]):
    over = over_after(tmp_path / "work/logs/benchmarks.jsonl", '{"case"')
    run = made(timing=over, python="echo '{\"case\": 1}'\nprintf '{\"case\"'\nsleep 1000\n")
    hardware_run.benchmarks(run, 2)
    assert report_of(run)["stages"][0]["facts"] == {"rows": [{"case": 1}]}


def test_interrupted_tests_report_progress(tmp_path: Path, made: Callable[..., Run]):
    run = made(
        timing=over_after(tmp_path / "work/logs/conformance.log", "three "),
        python="echo 'tests/a.py::one[nv:0] PASSED   [ 1%]'\necho 'tests/a.py::two FAILED [ 2%]'\n"
        "printf 'tests/a.py::three '\nsleep 1000\n",
    )
    run.options.dry = False
    hardware_run.tests(run, "conformance", ["tests/conformance"], 2)
    facts = report_of(run)["stages"][0]["facts"]
    assert facts == {
        "passed": 1, "failed": 1, "not passed": ["tests/a.py::two"], "last line": ["tests/a.py::three "],
    }  # fmt: skip


LADDER = """
while [ $# -gt 0 ]; do case "$1" in --report) report=$2;; --choices) choices=$2;; esac; shift; done
echo '{"finished": false, "working": "stack=low", "rungs": [
 {"rung": 18, "name": "a kernel", "choices": "stack=low", "passed": %s, "tried": true, "error": "no",
  "facts": {}}]}' > $report
echo "began with $choices"; sleep 1000
"""


@pytest.mark.parametrize("passed", ["true", "false"])
def test_a_ladder_cut_short_keeps_its_rungs_and_uses_working_choices(
    tmp_path: Path, made: Callable[..., Run], passed: str
):
    over = over_after(tmp_path / "work/logs/ladder.log", "began with pcas=3\n")
    run = made("--choices", "pcas=3", timing=over, python=LADDER % passed)
    launches = hardware_run.ladder(run, "ladder", 0, 24, 2, variants="needed")
    assert launches is (passed == "true")
    assert (run.choices, run.device) == ("stack=low", "nv:stack=low:0")
    stage = report_of(run)["stages"][0]
    assert stage["tail"] == "began with pcas=3\n"
    assert stage["facts"]["rungs"] == {"18 stack=low": "pass" if launches else "no"}  # type: ignore[index]  # JSON


def test_time_is_reserved_for_the_fault_and_the_check_after_it(made: Callable[..., Recorded]):
    run = made(kind=Recorded)
    hardware_run.run_stages(run)
    seen = run.seen
    names = [name for name, _ in seen]
    assert names == [name for name in hardware_run.NAMES if name != "wheels"]
    assert {reserve for name, reserve in seen if name not in {"fault", "after"}} == {80}
    assert dict(seen)["fault"] == 20
    assert dict(seen)["after"] == 0


def test_a_run_leaves_the_signal_handlers_of_its_caller(tmp_path: Path):
    (tmp_path / "file").touch()
    before = signal.getsignal(signal.SIGTERM)
    assert hardware_run.main(["--dry", "--out", str(tmp_path / "file"), "--work", str(tmp_path)]) == REFUSED
    assert signal.getsignal(signal.SIGTERM) is before


def test_the_time_limits_fit_into_ten_minutes():
    options = hardware_run.parse([])
    # A stage that cannot be ended is left after ten seconds; then the interpreter ends.
    assert options.total + Timing().end_s < 600 - 10


def test_missing_packages_name_the_installation_of_the_tests(made: Callable[..., Run]):
    run = made(python="""echo '{"pytest": "absent: No module named pytest", "numpy": "2"}'; exit 1\n""")
    hardware_run.packages(run)
    (stage,) = run.stages
    assert stage.status == "failed"
    assert stage.reason.startswith("not installed: pytest\nhint: python -m pip install -e '.[test]'")


def test_only_some_stages_run_on_request(made: Callable[..., Run]):
    run = made("--only", "box,packages")
    assert run.run(Stage("ladder", ["false"], 5)).status == "not run"
    assert run.run(Stage("box", ["true"], 500)).status == "passed"
    assert [stage.name for stage in run.stages] == ["box"]
    with pytest.raises(SystemExit):
        hardware_run.parse(["--only", "ladder,lader"])


def test_wheels_are_unpacked_where_pip_does_not_work(tmp_path: Path, made: Callable[..., Run]):
    folder = tmp_path / "wheels"
    folder.mkdir()
    with zipfile.ZipFile(folder / "thing-1.0-py3-none-any.whl", "w") as archive:
        archive.writestr("thing/__init__.py", "there = True\n")
    run = made("--wheels", str(folder), python="echo No module named pip; exit 1\n")
    hardware_run.wheels(run)
    stage = report_of(run)["stages"][0]
    assert str(stage["status"]).startswith("passed: unpacked")
    assert (run.site / "thing" / "__init__.py").exists()


def test_nothing_is_written_beside_the_two_folders(tmp_path: Path, made: Callable[..., Run]):
    run = made()
    env = run.env(Stage("x", [], 1))
    for name in ("HCQ_CACHE", "CUDA_CACHE_PATH", "TMPDIR"):
        assert env[name].startswith(str(tmp_path / "work"))
    assert env["PYTHONPATH"].split(os.pathsep) == [str(run.site), str(REPOSITORY)]


@pytest.mark.slow
def test_tools_of_the_first_rungs_need_no_package():
    code = "import tools.hardware_run, tools.hardware.box, tools.bringup.command, tools.bringup.ladder\n"
    code += "import tools.bringup.nv.table, tools.bringup.amd.table"
    python("-S", "-c", code, env={"PYTHONPATH": "."})


def test_a_host_without_a_gpu_reports_what_it_can(capsys: pytest.CaptureFixture[str]):
    assert box.main([]) == 0
    told = dict(item for line in capsys.readouterr().out.splitlines() for item in json.loads(line).items())
    assert list(told) == [name for name, _ in box.FACTS]
    assert told["system"]["uid"] == os.getuid()


FAILED = """
while [ $# -gt 0 ]; do case "$1" in --report) report=$2;; esac; shift; done
cat > $report <<'END'
{"finished": true, "working": "default", "rungs": [
 {"rung": 1, "name": "nodes open", "choices": "default", "passed": false, "tried": true, "variant": "",
  "error": "DriverError: open /dev/nvidiactl failed\\nhint: load the modules", "facts": {}},
 {"rung": 1, "name": "nodes open", "choices": "pcas=3", "passed": false, "tried": true, "variant": "x",
  "error": "of a variant", "facts": {}},
 {"rung": 2, "name": "version", "choices": "default", "passed": false, "tried": false, "variant": "",
  "error": "not run", "facts": {}}]}
END
exit 1
"""


def test_a_failing_ladder_reports_the_rung_and_a_hint(
    made: Callable[..., Run], capsys: pytest.CaptureFixture[str]
):
    run = made(python=FAILED)
    hardware_run.ladder(run, "ladder", 0, 24, 100, variants="needed")
    (stage,) = report_of(run)["stages"]
    assert stage["reason"] == (
        "rung 1, nodes open: DriverError: open /dev/nvidiactl failed; hint: load the modules\n"
        "skipped: rungs 2"
    )
    assert "failed   ladder" in (said := capsys.readouterr().err)
    assert "load the modules" in said


def test_a_run_with_only_skipped_tests_fails(made: Callable[..., Run]):
    run = made(
        python="echo 'tests/a.py::one[nv:0] SKIPPED (nv:0 cannot) [50%]'\n"
        "echo 'SKIPPED [1] tests/conftest.py:43: nv:0 cannot be opened here: no such device node'\n",
    )
    run.options.dry = False
    hardware_run.tests(run, "conformance", ["tests/conformance"], 100)
    (stage,) = report_of(run)["stages"]
    assert stage["status"] == "failed"
    assert stage["reason"] == "no test ran: nv:0 cannot be opened here: no such device node"


def test_a_failed_stage_reports_its_last_line(made: Callable[..., Run]):
    stage = made().run(Stage("odd", ["sh", "-c", "echo first; echo 'what went wrong'; exit 3"], 100))
    assert (stage.status, stage.reason) == ("failed", "what went wrong")


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"nodes": [], "nodes after": [], "files": {}, "kernel log": []},
         ("/dev/nvidiactl", "/dev/nvidiaN", "/dev/nvidia-uvm", "kernel driver", "--dry", "modprobe")),
        ({"nodes": ["/dev/nvidiactl crw 195,255", "/dev/nvidia0 crw 195,0"], "nodes after": [
            "/dev/nvidiactl crw 195,255", "/dev/nvidia0 crw 195,0"], "files": {}},
         ("/dev/nvidia-uvm",)),
    ],
)  # fmt: skip
def test_a_host_without_a_gpu_gets_a_list_of_what_is_missing(
    made: Callable[..., Run], told: dict[str, object], words: tuple[str, ...]
):
    run = made()
    run.options.dry = False
    run.stages.append(Stage("box", [], 1, facts=told))
    said = machine.missing(run)
    assert all(word in said for word in words), said
    assert ("/dev/nvidiactl" in said) is not bool(told["nodes"])


AMD_FILES = {"/sys/class/kfd/kfd/topology/nodes/1/properties": "gfx_target_version 110000\n"}


@pytest.mark.parametrize(
    ("nodes", "files", "words"),
    [
        ([], {}, ("/dev/kfd", "renderD", "topology", "modprobe amdgpu", "--group-add render", "--dry")),
        (["/dev/kfd crw 0:109"], AMD_FILES, ("a render node",)),
        (["/dev/kfd crw 0:109", "/dev/dri/renderD128 crw 0:109"], AMD_FILES, ()),
    ],
)
def test_an_amd_host_gets_its_own_list_of_what_is_missing(
    made: Callable[..., Run], nodes: list[str], files: dict[str, str], words: tuple[str, ...]
):
    run = made("--device", "amd")
    run.options.dry = False
    run.stages.append(Stage("box", [], 1, facts={"nodes": nodes, "files": files}))
    said = machine.missing(run)
    assert bool(said) is bool(words)
    assert all(word in said for word in words), said
    assert "nvidia" not in said


def test_the_vendor_is_that_of_the_nodes_or_the_one_that_is_named(tmp_path: Path, made: Callable[..., Run]):
    assert machine.detected(tmp_path) == "nv"
    (tmp_path / "kfd").touch()
    assert machine.detected(tmp_path) == "amd"
    (tmp_path / "nvidiactl").touch()
    assert machine.detected(tmp_path) == "nv"
    assert made("--device", "amd:2").device == "amd:2"
    assert made("--device", "amd", "--choices", "order=release").device == "amd:order=release:0"
    assert made("--device", "nv:1").device == "nv:1"
    with pytest.raises(SystemExit):
        made("--device", "intel:0")


@pytest.mark.parametrize("name", ["nv-emu", "nv-emu:sm_80", "amd-emu:gfx942"])
def test_a_rehearsal_runs_every_stage_on_the_emulated_gpu(tmp_path: Path, name: str):
    folders = ["--out", str(tmp_path / "out"), "--work", str(tmp_path / "work")]
    run = Recorded(hardware_run.parse(["--device", name, *folders]))
    hardware_run.run_stages(run)
    assert run.device == name
    assert {stage for stage, _ in run.seen} == set(hardware_run.NAMES) - {"wheels"}
    commands = run.commands
    assert f"--device {name}" in commands["ladder"]
    for stage in ("benchmarks", "calibration", "programs"):
        assert name in commands[stage]
    assert "test_assignment" in commands["operations"]
    assert "tests/conformance" in commands["conformance"]
    assert "kernels" not in commands["benchmarks"].split()
    assert machine.missing(run) == ""


@pytest.mark.parametrize("more", [["--dry"], ["--choices", "stack=low"]])
def test_a_rehearsal_has_neither_choices_nor_a_dry_run(more: list[str]):
    with pytest.raises(SystemExit):
        hardware_run.parse(["--device", "nv-emu", *more])


def test_stages_of_an_amd_run_name_its_device(made: Callable[..., Recorded]):
    run = made("--device", "amd:1", kind=Recorded)
    hardware_run.run_stages(run)
    commands = run.commands
    assert "--device amd:1" in commands["ladder"]
    assert "tools.bench submit --quick --device amd-emu" in commands["benchmarks"]
    assert "nv" not in commands["ladder"].split()


def test_a_host_with_a_gpu_lacks_nothing(made: Callable[..., Run]):
    run = made()
    nodes = [f"/dev/{name} crw 195,0" for name in ("nvidia-uvm", "nvidia0", "nvidiactl")]
    run.stages.append(Stage("box", [], 1, facts={"nodes": nodes, "files": {}}))
    assert machine.missing(run) == ""
    run.options.dry = False
    assert machine.missing(run) == ""


def test_outcomes_are_read_from_one_process_and_from_several():
    alone = "tests/a.py::test_x[1] PASSED   [ 50%]\ntests/a.py::test_y FAILED [100%]\n"
    beside = "[gw1] [  3%] PASSED tests/a.py::test_x[a b] \n[gw0] [100%] SKIPPED tests/a.py::test_y \n"
    assert hardware_run.outcomes_in(alone) == [
        ("tests/a.py::test_x[1]", "PASSED"),
        ("tests/a.py::test_y", "FAILED"),
    ]
    assert hardware_run.outcomes_in(beside) == [
        ("tests/a.py::test_x[a b]", "PASSED"),
        ("tests/a.py::test_y", "SKIPPED"),
    ]


BOX: dict[str, Any] = {
    "name": "box",
    "command": ["box"],
    "status": "passed",
    "reason": "",
    "facts": {
        "files": {
            "/proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Open Kernel Module  580.159.04",
            "/proc/driver/nvidia/gpus/0000:00:06.0/information": "Model: \t\t NVIDIA H100 80GB HBM3\nIRQ: 41",
        }
    },
}
WRONG: dict[str, Any] = {
    "name": "conformance", "command": ["pytest"], "status": "failed", "reason": "3 of 9 tests", "facts": {},
}  # fmt: skip


def test_the_report_names_gpu_and_driver():
    assert summary.gpu([BOX]) == "NVIDIA H100 80GB HBM3"
    assert summary.driver([BOX]) == "580.159.04"
    ladder = {"name": "ladder", "facts": {"seen": {"2 default": {"version": "570.1.2", "branch": 570}}}}
    assert (summary.gpu([ladder]), summary.driver([ladder])) == ("", "570.1.2")


def test_the_report_lists_what_failed_and_how_to_repeat_it():
    (row,) = summary.failed([BOX, WRONG], device="nv:1", choices="stack=low", dry=False)
    assert row["stage"] == "conformance"
    assert row["reason"] == "3 of 9 tests"
    assert row["log"] == "conformance.log in evidence.tar.gz"
    again = row["again"].split()[3:]
    options = hardware_run.parse(again)
    assert (options.vendor, options.device, options.choices) == ("nv", 1, "stack=low")
    assert options.only == "conformance"


def test_a_report_has_the_facts_of_its_machine(made: Callable[..., Run]):
    run = made()
    run.run(Stage("fails", [sys.executable, "-S", "-c", "raise SystemExit('no memory')"], 40))
    report: Any = report_of(run)
    assert {"written", "commit", "device", "gpu", "driver", "python", "kernel", "failed"} <= set(report)
    assert [row["reason"] for row in report["failed"]] == ["no memory"]


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--patience", "nan"], "wanted a number above 0, saw 'nan'"),
        (["--total", "-1"], "wanted a number above 0, saw '-1'"),
        (["--only", ","], "--only: wanted some of wheels, box"),
        (["--kernels", "/nowhere"], "wanted a folder, '/nowhere' is not there"),
        (["--wheels", "/nowhere"], "wanted a folder, '/nowhere' is not there"),
    ],
)
def test_wrong_options_are_refused(argv: list[str], words: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        hardware_run.parse(argv)
    assert ended.value.code == 2
    assert words in capsys.readouterr().err


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = tmp_path / "file"
    file.write_text("")
    folders = ["--out", str(file / "out"), "--work", str(tmp_path)]
    assert hardware_run.main(["--dry", "--only", "box", *folders]) == 2
    assert "--out and --work must be folders that can be written" in capsys.readouterr().err


def test_benchmarks_need_no_git(tmp_path: Path):
    code = "from tools.bench.rows import commit; print(commit())"
    done = python("-c", code, status=None, env={"PATH": str(tmp_path)})
    assert (done.stdout, done.returncode) == ("unknown\n", 0)
