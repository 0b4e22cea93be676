"""Captures of submissions: written by `HCQ_CAPTURE`, printed, and replayed to the same memory."""

from __future__ import annotations

import copy
import itertools
import json
import random
import signal
from typing import TYPE_CHECKING, Any

import pytest

import hcq
from compiler.targets.nvptx import assembler
from hcq.capture.log import read
from hcq.config import override
from hcq.errors import UsageError
from tests.children import python
from tests.conformance.kernels import image
from tests.limits import HANG_S
from tools.bringup.nv import kernels
from tools.trace.__main__ import main
from tools.trace.text import lines

if TYPE_CHECKING:
    from pathlib import Path

ONE = (1, 1, 1)
SHARED = hcq.BufferSpec(place=hcq.Place.HOST, host_visible=True, coherent=True)
DEVICES = ["cpu", "nv-emu", "amd-emu", "amd-emu:gfx942"]
BYTES = 256
KINDS = ("value", "number", "destination", "lost")
"""How a planted packet is wrong."""


def recorded(name: str, path: Path, count: int, seed: int = 0) -> None:
    """Capture random copies, fills, stores and kernels on two queues, with host accesses between them."""
    rng = random.Random(seed)
    with override(capture=str(path)), hcq.open(name) as device:
        programs = {kernel: device.load(image(kernel, device.info)) for kernel in ("affine", "add")}
        video = [device.alloc(BYTES, label=f"video {i}") for i in range(3)]
        shared = [device.alloc(BYTES, SHARED, label=f"shared {i}") for i in range(3)]
        last = device.compute.submit(device.compute.record())
        for buffer in video + shared:
            last = device.compute.submit(device.compute.record().fill(buffer, rng.getrandbits(32)))
        for i in range(count):
            one, other, third = rng.sample(video + shared, 3)
            queue = rng.choice([device.compute, device.copies[0]])
            todo = queue.record(label=f"step {i}")
            kind = rng.choice(["copy", "fill", "write", "affine", "add", "host"])
            if kind in programs and queue is device.compute:
                program = programs[kind]
                values = (
                    (one, other, third)
                    if kind == "add"
                    else (one, 2 * rng.randrange(9) + 1, rng.randrange(9))
                )
                todo.exec(
                    program, program.args(*values), groups=(4, 1, 1) if kind == "add" else ONE, threads=ONE
                )
            elif kind == "write":
                todo.write(one, rng.getrandbits(32))
            elif kind == "fill":
                todo.fill(one, rng.getrandbits(32), size=64)
            else:
                todo.copy(one, other)
            if kind == "host":
                last.wait(timeout_s=HANG_S)
                rng.choice(shared).host()[:4] = rng.randbytes(4)
            last = queue.submit(todo, after=[last])
        last.wait(timeout_s=HANG_S)
        assert all(any(buffer.host()) for buffer in shared)


@pytest.mark.parametrize("name", DEVICES)
def test_a_replay_leaves_what_the_host_read(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = tmp_path / "run.jsonl"
    recorded(name, file, 60)
    assert main(["replay", str(file)]) == 0
    told = capsys.readouterr().out.split()
    assert int(told[0]) == 67
    assert int(told[2]) >= 3
    text = "\n".join(lines(read(file), packets=True))
    assert "cannot be decoded" not in text
    assert "exec affine(out=#" in text
    assert "host writes #" in text


def planted(record: dict[str, Any], kind: str, buffers: list[int]) -> bool:
    """Make the packet of a submission wrong in one way; return whether it has what that changes."""
    command = record["commands"][-1]
    name, args = command["c"], command.get("args", [])
    other = next(n for n in buffers if n != command.get("dst", [0])[0])
    if kind == "value" and name in {"Fill", "Write"}:
        command["value"] ^= 1
    elif kind == "number" and name == "Exec" and isinstance(args[2], int):
        args[2] ^= 1  # the term that is added
    elif kind == "destination" and name in {"Fill", "Write"}:
        command["dst"] = [other, command["dst"][1]]
    elif kind == "lost" and name in {"Fill", "Write", "Copy", "Exec"}:
        record["commands"].pop()
    else:
        return False
    return True


@pytest.mark.landing
@pytest.mark.usefixtures("fast")
def test_bisect_names_each_of_10_among_10_000(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    test_bisect_names_each_planted_packet("cpu", 10_000, 10, tmp_path, capsys)


@pytest.mark.parametrize(
    ("name", "count", "wrong"), [("cpu", 400, 10), ("nv-emu", 40, 3), ("amd-emu", 40, 3)]
)
def test_bisect_names_each_planted_packet(
    name: str, count: int, wrong: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """All packets are wrong at once: each bisection finds the first one, which is then mended."""
    file, good, bad = tmp_path / "run.jsonl", tmp_path / "good.json", tmp_path / "bad.jsonl"
    recorded(name, file, count, seed=1)
    assert main(["replay", str(file), "--digests", str(good)]) == 0
    records = [json.loads(line) for line in file.read_text().splitlines()]
    buffers = [record["id"] for record in records if record["t"] == "buffer"]
    rng = random.Random(count)
    submits = [at for at, record in enumerate(records) if record["t"] == "submit" and record["commands"]]
    rng.shuffle(submits)
    kept: dict[int, dict[str, Any]] = {}
    for kind in itertools.islice(itertools.cycle(KINDS), wrong):
        while True:
            at = submits.pop()
            kept[at] = copy.deepcopy(records[at])
            if planted(records[at], kind, buffers):
                break
            del kept[at]
    written = [f"{json.dumps(record)}\n" for record in records]
    for at in sorted(kept):
        bad.write_text("".join(written))
        capsys.readouterr()
        assert main(["bisect", str(bad), str(good)]) == 1
        first = f"submission {records[at]['n']} is the first that leaves other memory"
        assert capsys.readouterr().out.startswith(first), kept[at]
        written[at] = f"{json.dumps(kept[at])}\n"
    assert main(["diff", str(file), str(bad)]) == 1
    assert main(["bisect", str(file), str(good)]) == 0


def test_work_that_waits_for_the_host_reads_what_it_wrote_meanwhile(tmp_path: Path):
    file = tmp_path / "run.jsonl"
    with override(capture=str(file)), hcq.open("cpu") as device:
        source, target = device.alloc(BYTES, SHARED), device.alloc(BYTES, SHARED)
        ready = device.signal(host_set=True, label="ready")
        point = device.compute.submit(device.compute.record().wait(ready, 1).copy(target, source))
        source.host()[:5] = b"later"
        ready.value = 1
        point.wait(timeout_s=HANG_S)
        assert bytes(target.host()[:5]) == b"later"
    assert main(["replay", str(file)]) == 0
    assert any(record["t"] == "memory" and record["held"] for record in read(file))


def test_replays_of_a_graph_are_captured_with_their_values(tmp_path: Path):
    file = tmp_path / "run.jsonl"
    with override(capture=str(file)), hcq.open("cpu") as device:
        affine = device.load(image("affine", device.info))
        graph = hcq.Graph()
        out, factor = graph.param("out", size=4), graph.param("factor", bits=32)
        copied = graph.param("copied", size=4)
        first = graph.add(
            device.compute,
            device.compute.record().exec(affine, affine.args(out, factor, 3), groups=ONE, threads=ONE),
        )
        graph.add(device.copies[0], device.copies[0].record().copy(copied, out, 4), after=[first])
        executable = graph.compile()
        a, b = device.alloc(BYTES, SHARED), device.alloc(BYTES, SHARED)
        a.host().cast("I")[0] = 5
        for value in (2, 7):
            executable.replay([a, value, b]).wait(timeout_s=HANG_S)
        assert b.host().cast("I")[0] == (5 * 2 + 3) * 7 + 3
    assert main(["replay", str(file)]) == 0
    launches = [c for r in read(file) if r["t"] == "submit" for c in r["commands"] if c["c"] == "Exec"]
    assert [launch["args"][1:] for launch in launches] == [[2, 3], [7, 3]]


def test_an_argument_block_is_captured_with_the_sizes_of_each_launch(tmp_path: Path):
    file = tmp_path / "run.jsonl"
    with override(capture=str(file)), hcq.open("cpu") as device:
        add, groups = device.load(image("add", device.info)), hcq.Param("groups", bits=32)
        one, other, third = (device.alloc(BYTES, SHARED) for _ in range(3))
        args = add.args(one, other, third)
        for size in (1, 1, 2, groups, 1):
            todo = device.compute.record().exec(add, args, groups=(size, 1, 1), threads=ONE)
            for values in ({groups: 3}, {groups: 4}):
                device.compute.submit(todo, values=values).wait(timeout_s=HANG_S)
    launches = [c for r in read(file) if r["t"] == "submit" for c in r["commands"]]
    assert [launch["groups"][0] for launch in launches] == [1, 1, 1, 1, 2, 2, 3, 4, 1, 1]
    buffers = [record["id"] for record in read(file) if record["t"] == "buffer"]
    assert all([root for root, _ in launch["args"]] == buffers[-3:] for launch in launches)


def test_a_refused_submission_is_not_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = tmp_path / "run.jsonl"
    with override(capture=str(file)), hcq.open("cpu") as device:
        buffer, size = device.alloc(BYTES), hcq.Param("size")
        with pytest.raises(UsageError):
            device.compute.submit(device.compute.record().fill(buffer, 0, size=size), values={size: 1 << 40})
        device.compute.submit(device.compute.record().fill(buffer, 1)).wait(timeout_s=HANG_S)
    assert main(["replay", str(file)]) == 0
    assert capsys.readouterr().out.startswith("1 submissions")


@pytest.mark.skipif(not assembler.available(), reason="neither nvJitLink nor ptxas is installed")
def test_a_fault_is_captured_and_happens_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = tmp_path / "run.jsonl"
    with override(capture=str(file)), hcq.open("nv-emu") as device:
        wild = device.load(kernels.image("wild", device.info.arch))
        args = wild.args(device.alloc(BYTES), 1 << 20)
        point = device.compute.submit(device.compute.record().exec(wild, args, groups=ONE, threads=ONE))
        with pytest.raises(hcq.DeviceFault):
            point.wait(timeout_s=HANG_S)
    assert any(line.startswith("fault of nv-emu:") and "wild" in line for line in lines(read(file)))
    assert main(["replay", str(file)]) == 1
    assert "ended by: " in capsys.readouterr().out


def test_a_killed_process_leaves_a_capture_that_can_be_read(tmp_path: Path):
    file = tmp_path / "run.jsonl"
    program = (
        "import hcq, os, signal\n"
        "device = hcq.open('cpu')\n"
        "buffer = device.alloc(64)\n"
        "device.compute.submit(device.compute.record().fill(buffer, 7)).wait()\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    python("-c", program, status=-signal.SIGKILL, HCQ_CAPTURE=str(file))
    with file.open("ab") as end:
        end.write(b'{"t":"submit","n":2')
    assert [record["t"] for record in read(file)][-1] == "sent"
    assert main(["replay", str(file)]) == 0


def test_a_program_goes_on_where_its_capture_cannot_be_written():
    with override(capture="/dev/full"):
        with pytest.warns(UserWarning, match="the capture /dev/full is incomplete: .*No space left"):
            device = hcq.open("cpu")
        with device:
            buffer = device.alloc(BYTES, SHARED)
            device.compute.submit(device.compute.record().fill(buffer, 7)).wait(timeout_s=HANG_S)
            assert buffer.host()[0] == 7


def test_the_host_sets_a_signal_after_another_device_was_closed(tmp_path: Path):
    with override(capture=str(tmp_path / "run.jsonl")), hcq.open("cpu") as device:
        with hcq.open("cpu") as closed:
            left = closed.alloc(BYTES, SHARED)  # it has no memory any more, but it exists
            left.host()[0] = 7
        gate = device.signal(host_set=True)
        gate.value = 1
        assert gate.value == 1


def test_a_replay_waits_for_what_was_done_alone(tmp_path: Path):
    """The host reads and writes while a queue waits for it: for a signal, then for memory."""
    file = tmp_path / "run.jsonl"
    with override(capture=str(file)), hcq.open("cpu") as device:
        flag, source, out, other = (device.alloc(BYTES, SHARED) for _ in range(4))
        for buffer in (flag, source, out, other):
            buffer.host()[:] = bytes(BYTES)
        queue, copies, gate = device.compute, device.copies[0], device.signal(host_set=True)
        blocked = queue.submit(queue.record().wait(gate, 1).copy(out, source))
        copies.submit(copies.record().copy(other, flag)).wait(timeout_s=HANG_S)
        assert other.host()[0] == 0
        gate.value = 1
        blocked.wait(timeout_s=HANG_S)
        later = queue.submit(queue.record().wait_memory(flag, 3).fill(out, 7))
        flag.host().cast("Q")[0] = 3
        later.wait(timeout_s=HANG_S)
        assert out.host()[0] == 7
    assert main(["replay", str(file)]) == 0


def test_a_forked_child_writes_a_capture_of_its_own(tmp_path: Path):
    file = tmp_path / "run.jsonl"
    program = (
        "import hcq, os\n"
        "def run(value):\n"
        "    with hcq.open('cpu') as device:\n"
        "        buffer = device.alloc(64)\n"
        "        device.compute.submit(device.compute.record().fill(buffer, value)).wait()\n"
        "run(1)\n"
        "child = os.fork()\n"
        "run(2)\n"
        "child and os.waitpid(child, 0)\n"
    )
    python("-c", program, HCQ_CAPTURE=str(file))
    files = sorted(tmp_path.iterdir())
    assert [sum(record["t"] == "sent" for record in read(one)) for one in files] == [2, 1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}\n", "line 1: wanted an object"),
        ('{"t":"hcq-capture","version":99}\n', "no capture of version 1"),
        ('{"t":"hcq-capture","version":1}\nnonsense\n', "line 2: wanted an object"),
        (
            '{"t":"hcq-capture","version":1}\n{"t":"seen","buffer":1}\n',
            "a file is damaged: KeyError('digest')",
        ),
    ],
)
def test_another_file_is_refused(text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = tmp_path / "run.jsonl"
    file.write_text(text)
    with pytest.raises(SystemExit):
        main(["dump", str(file)])
    assert message in capsys.readouterr().err
