"""`python -m tests.fuzz.queues [--cases 200] [--first 0] [--device NAME] [--faults] [--show SEED]`.

It compares random programs of queue submissions with their sequential execution, with validation and without:
a legal program must cause no report and give the same memory. Some programs have a host thread for each
queue. Host views of freed buffers must keep their bytes, also after the device is closed. With `--faults` it
plants a fault of `queue_faults` after each program; validation must report it. It prints the failures and
exits with 1 if there is one.

Not here: making programs (`queue_programs`), faults (`queue_faults`).
"""

from __future__ import annotations

import sys
import threading
import traceback
import warnings
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

import hcq
from tests.fuzz import campaign
from tests.fuzz.queue_calls import CALLS, unexpected
from tests.fuzz.queue_faults import FAULTS, misreported
from tests.fuzz.queue_kernels import SHARED, Stage
from tests.fuzz.queue_programs import WORDS, Command, Maker, Program, Range, apply, freed_fill, start
from tools.arguments import device_name, reported

if TYPE_CHECKING:
    from collections.abc import Sequence

WAIT_S: Final = 120.0


class Differs(AssertionError):  # noqa: N818 - a result, not an error of the tool
    """Memory differs from that of the sequential execution."""


class Run:
    """One program on a stage."""

    def __init__(self, program: Program, stage: Stage) -> None:
        self.program, self.stage = program, stage
        self.memory = start(program.seed)
        self.buffers = [stage.buffer(data.tobytes()) for data in self.memory]
        self.points: dict[int, hcq.Point] = {}
        self.signals = {
            n: stage.devices[0].signal(label=f"end of {n}")
            for n, s in enumerate(program.submissions)
            if s.raises
        }
        self.kept: list[Any] = []
        self.views: dict[int, np.ndarray[Any, Any]] = {}
        """Host views of the buffers that submissions free."""
        self.wanted: dict[int, np.ndarray[Any, Any]] = {}
        """What they must have in the end."""

    def view(self, where: Range) -> hcq.Buffer:
        """Return a view of a range."""
        return self.buffers[where.buffer].view(4 * where.begin, 4 * (where.end - where.begin))

    def record(
        self, number: int, commands: hcq.CommandBuffer, *, term: hcq.Param | None = None
    ) -> hcq.CommandBuffer:
        """Record the commands of a submission."""
        one = self.program.submissions[number]
        mix = self.stage.mix[self.stage.queues[one.queue].device]
        for n in one.awaits:
            commands.wait(self.signals[n], 1)
        for command in one.commands:
            self._command(commands, command, mix, term)
        if one.raises:
            commands.signal(self.signals[number], 1)
        return commands

    def _command(
        self, commands: hcq.CommandBuffer, command: Command, mix: hcq.Program, term: hcq.Param | None
    ) -> None:
        dst, src = command.dst, command.src
        if dst is None:
            commands.barrier()
        elif command.kind == "fill":
            commands.fill(self.view(dst), command.value)
        elif command.kind == "write":
            commands.write(self.view(dst), command.value)
        elif src is not None and command.kind == "copy":
            commands.copy(self.view(dst), self.view(src))
        elif src is not None:
            value = command.value if term is None else term + command.value
            arguments = mix.args(self.view(dst), self.view(src), value)
            commands.exec(mix, arguments, groups=(dst.end - dst.begin, 1, 1), threads=(1, 1, 1))

    def submit(self, number: int) -> None:
        """Submit one submission; wait and free as the program says."""
        one = self.program.submissions[number]
        queue = self.stage.queues[one.queue]
        after = [self.points[n] for n in one.after]
        if one.graph:
            graph = hcq.Graph(label=f"graph {number}")
            term = graph.param("term", bits=32)
            graph.add(queue, self.record(number, queue.record(), term=term))
            executable = graph.compile()
            self.kept.append(executable)
            for lap in range(one.graph):
                point = executable.submit({term: lap}, after=after if lap == 0 else [])
        else:
            point = queue.submit(self.record(number, queue.record(label=f"submission {number}")), after=after)
        self.points[number] = point
        if one.host_waits:
            point.wait(timeout_s=WAIT_S)
        if one.frees >= 0:
            old = self.buffers[one.frees]
            self.views[number] = np.frombuffer(old.host(), np.uint32)
            if not one.drops:
                old.close()
            fresh = np.full(WORDS, freed_fill(number), np.uint32)
            self.buffers[one.frees] = self.stage.buffer(fresh.tobytes())

    def _submit_by_threads(self) -> None:
        """Submit from a thread for each queue; each waits for the submissions that must be made before."""
        done = [threading.Event() for _ in self.program.submissions]
        raised: list[BaseException] = []

        def work(queue: int) -> None:
            try:
                for n in self.program.order:
                    if self.program.submissions[n].queue == queue:
                        for m in self.program.before[n]:
                            done[m].wait()
                        if raised:
                            return
                        self.submit(n)
                        done[n].set()
            except BaseException as error:  # noqa: BLE001 - raised again below
                raised.append(error)
                for event in done:
                    event.set()

        threads = [threading.Thread(target=work, args=(n,)) for n in range(len(self.stage.queues))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if raised:
            raise raised[0]

    def check_views(self) -> None:
        """Compare the host views of freed buffers with their last bytes; `Differs` if they differ."""
        for number, wanted in self.wanted.items():
            if not np.array_equal(found := self.views[number], wanted):
                raise Differs(f"the view of the buffer freed by {number}: {found} instead of {wanted}")

    def play(self) -> None:
        """Run the program and compare memory with the sequential execution; `Differs` if it differs."""
        if self.program.threads:
            self._submit_by_threads()
        else:
            for number in self.program.order:
                self.submit(number)
        for point in self.points.values():
            point.wait(timeout_s=WAIT_S)
        for number, one in enumerate(self.program.submissions):
            for lap in range(max(1, one.graph)):
                apply(one.commands, self.memory, lap=lap)
            if one.frees >= 0:
                self.wanted[number] = self.memory[one.frees].copy()
                self.memory[one.frees][:] = freed_fill(number)
        self.check_views()
        for index, (buffer, wanted) in enumerate(zip(self.buffers, self.memory, strict=True)):
            found = np.frombuffer(buffer.host(), np.uint32)
            if not np.array_equal(found, wanted):
                at = int(np.flatnonzero(found != wanted)[0])
                raise Differs(
                    f"buffer {index}, word {at}: {int(found[at]):#x} instead of {int(wanted[at]):#x}"
                )

    def close(self) -> None:
        """Close the executables and buffers of the run."""
        for executable in self.kept:
            executable.close()
        for buffer in self.buffers:
            buffer.close()
        self.kept.clear()
        self.buffers.clear()


def describe(program: Program) -> str:
    """Return a program as text, with a line for each submission and command, in the order of submission."""
    lines = ["a thread submits for each queue"] if program.threads else []
    for n in program.order:
        one = program.submissions[n]
        facts = [f"queue {one.queue}"]
        facts += [f"after {one.after}"] if one.after else []
        facts += [f"waits for the signals of {one.awaits}"] if one.awaits else []
        facts += ["raises its signal"] if one.raises else []
        facts += [f"graph, {one.graph} replays"] if one.graph else []
        facts += ["the host waits"] if one.host_waits else []
        facts += [f"buffer {one.frees} is {'dropped' if one.drops else 'closed'}"] if one.frees >= 0 else []
        lines.append(f"submission {n}: {', '.join(facts)}")
        lines += [f"    {_shown(command)}" for command in one.commands]
    return "\n".join(lines)


def _shown(command: Command) -> str:
    def text(where: Range | None) -> str:
        return "" if where is None else f"b{where.buffer}[{where.begin}:{where.end}]"

    source = f" from {text(command.src)}" if command.src else ""
    return f"{command.kind} {text(command.dst)}{source} {command.value:#x}"


def differing(first: int, count: int, names: Sequence[str]) -> dict[int, str]:
    """Run the programs of `count` seeds with and without validation; return the failures by seed."""
    found: dict[int, str] = {}
    for validate in (True, False):
        stage = Stage(names, validate=validate, seed=first + 1 if validate else 0)
        runs: dict[int, Run] = {}
        for seed in range(first, first + count):
            program = Maker(seed, stage.compute).program
            try:
                run = Run(program, stage)
                run.play()
                run.close()
                runs[seed] = run
            except Exception:  # noqa: BLE001 - the programs are legal, so any exception is a finding
                what = "validated" if validate else "not validated"
                found[seed] = f"seed {seed}, {what}:\n{describe(program)}\n{traceback.format_exc(limit=-4)}"
                stage = Stage(names, validate=validate, seed=first + 1 if validate else 0)
        stage.close()
        for seed, run in runs.items():  # views of closed devices, too
            try:
                run.check_views()
            except Differs as error:
                found[seed] = f"seed {seed}, after closing:\n{describe(run.program)}\n{error}"
    return found


def unreported(first: int, count: int, names: Sequence[str]) -> dict[int, str]:
    """Plant a fault after each program; return the faults that validation did not report, by seed."""
    found = {}
    for seed in range(first, first + count):
        stage = Stage(names, validate=True)
        run = Run(Maker(seed, stage.compute).program, stage)
        run.play()
        text = misreported(seed, stage, SHARED)
        if text:
            found[seed] = text
        with suppress(hcq.HcqError), warnings.catch_warnings():
            # The fault may appear again: a queue that waits for ever is closed with a warning.
            warnings.simplefilter("ignore", ResourceWarning)
            run.close()
            stage.close()
    return found


def unexpected_calls(first: int, count: int, names: Sequence[str]) -> dict[int, str]:
    """Make calls with arguments of any class; return the errors that are not the project's, by seed."""
    stage, found = Stage(names, validate=True), {}
    for seed in range(first, first + count):
        if text := unexpected(seed, stage):
            found[seed] = f"seed {seed}: {text}"
    stage.close()
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Run the tool and return its exit status."""
    parser = campaign.parser("tests.fuzz.queues", __doc__)
    parser.add_argument(
        "--device",
        type=device_name,
        action="append",
        metavar="NAME",
        help="open this device; may be repeated (default cpu)",
    )
    parser.add_argument("--faults", action="store_true", help=f"plant faults, of {len(FAULTS)} kinds")
    parser.add_argument("--calls", action="store_true", help=f"make calls with any arguments, {CALLS} a case")
    options = parser.parse_args(argv)
    names = options.device or ["cpu"]
    if options.show is not None:
        stage = Stage(names, validate=True)
        sys.stdout.write(describe(Maker(options.show, stage.compute).program) + "\n")
        stage.close()
        return 0
    if options.calls:
        check, verb = unexpected_calls, "rounds of wrong calls raise errors of the project"
    elif options.faults:
        check, verb = unreported, "faults are reported"
    else:
        check, verb = differing, "programs agree"
    return campaign.run(partial(check, names=names), options, f"{verb} on {' '.join(names)}")


if __name__ == "__main__":
    sys.exit(reported(main))
