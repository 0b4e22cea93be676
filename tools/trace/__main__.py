"""`hcq trace dump|diff|replay|bisect|show`: reads what `HCQ_CAPTURE` and `HCQ_CRASH` wrote.

    HCQ_CAPTURE=run.jsonl python examples/digits.py
    hcq trace dump run.jsonl --packets
    hcq trace replay run.jsonl --digests good.json
    hcq trace bisect run.jsonl good.json

`replay` sends the submissions again and compares what the host read; `--digests` also keeps the digests of
the memory that each submission wrote. `bisect` replays, and names the first submission with another digest:
on another device, with another driver, or after a change. `show` prints crash reports.

Exits with 1 for a difference or a fault, 2 for wrong arguments. Not here: writing captures (`hcq.capture`).
Next: `replayer`.
"""

from __future__ import annotations

import argparse
import json
import sys
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

from hcq.capture.log import read
from hcq.cli import prog
from hcq.errors import HcqError, UsageError
from hcq.faults.crash import VERSION
from tools.trace.difference import unified
from tools.trace.replayer import Outcome, Replay
from tools.trace.text import Symbols, crash_text, lines

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status. Wrong arguments raise `SystemExit(2)`."""
    parser = argparse.ArgumentParser(prog=prog("tools.trace"), description="read captures (HCQ_CAPTURE)")
    commands = parser.add_subparsers(dest="command", required=True)
    dump = commands.add_parser("dump", help="print a capture, a line for each event")
    dump.add_argument("--packets", action="store_true", help="also the packets of each submission")
    diff = commands.add_parser("diff", help="compare the submissions of two captures")
    replay = commands.add_parser("replay", help="send the submissions again, and compare what the host read")
    replay.add_argument("--digests", type=Path, help="file that gets the digests of written memory as JSON")
    bisect = commands.add_parser("bisect", help="find the first submission that leaves other memory")
    show = commands.add_parser("show", help="print crash reports (HCQ_CRASH)")
    show.add_argument("--json", action="store_true", help="as JSON, a line each")
    for part in (dump, diff, replay, bisect, show):
        part.add_argument("file", type=Path, help="a capture")
    diff.add_argument("other", type=Path, help="the other capture")
    bisect.add_argument("good", type=Path, help="digests of a good replay (`replay --digests`)")
    for part in (replay, bisect):
        part.add_argument("--device", help="device to open; default: the recorded name")
    options = parser.parse_args(argv)
    try:
        return _COMMANDS[options.command](options)
    except (HcqError, OSError) as error:
        parser.exit(2, f"hcq trace: {error}\n")
    except (KeyError, zlib.error, json.JSONDecodeError) as error:
        parser.exit(2, f"hcq trace: a file is damaged: {error!r} in a line that can be read\n")


def _dump(options: argparse.Namespace) -> int:
    for line in lines(read(options.file), packets=options.packets):
        print(line)
    return 0


def _submissions(path: Path) -> list[str]:
    """Return the submissions of a capture as text, without addresses."""
    symbols, found = Symbols(), list[str]()
    for record in read(path):
        symbols.take(record)
        if record["t"] == "submit":
            found.append(f"to {record['queue']} {record['label']}")
            found += [f"    {symbols.command(command)}" for command in record["commands"]]
    return found


def _diff(options: argparse.Namespace) -> int:
    one, other = _submissions(options.file), _submissions(options.other)
    found = list(unified(one, other, (str(options.file), str(options.other))))
    print("\n".join(found) if found else f"{sum(line[0] != ' ' for line in one)} submissions, no difference")
    return 1 if found else 0


def _report(outcome: Outcome) -> int:
    print(f"{outcome.submissions} submissions, {outcome.compared} reads of the host compared")
    for line in outcome.differences:
        print(f"difference: {line}")
    if outcome.fault:
        print(f"ended by: {outcome.fault}")
    return 1 if outcome.differences or outcome.fault else 0


def _replay(options: argparse.Namespace) -> int:
    digests: dict[str, dict[str, str]] = {}

    def keep(number: int, found: dict[int, str]) -> bool:
        digests[str(number)] = {str(buffer): text for buffer, text in found.items()}
        return True

    with Replay(
        read(options.file), device=options.device, after_each=keep if options.digests else None
    ) as run:
        outcome = run.run()
    if options.digests:
        options.digests.write_text(json.dumps(digests) + "\n", encoding="utf-8")
    return _report(outcome)


def _bisect(options: argparse.Namespace) -> int:
    records = list(read(options.file))
    good = json.loads(options.good.read_text(encoding="utf-8"))
    first: list[tuple[int, list[int]]] = []

    def compare(number: int, found: dict[int, str]) -> bool:
        seen = {str(buffer): text for buffer, text in found.items()}
        wanted = good.get(str(number), seen)
        other = [int(buffer) for buffer in wanted | seen if wanted.get(buffer) != seen.get(buffer)]
        if other:
            first.append((number, other))
        return not other

    with Replay(records, device=options.device, after_each=compare) as run:
        outcome = run.run()
    if not first:
        return _report(outcome)
    number, buffers = first[0]
    symbols = Symbols()
    for record in records:
        symbols.take(record)
    names = ", ".join(symbols.pointer([buffer, 0]) for buffer in buffers)
    print(f"submission {number} is the first that leaves other memory: {names}")
    for command in symbols.submits[number]["commands"]:
        print(f"    {symbols.command(command)}")
    return 1


def _show(options: argparse.Namespace) -> int:
    for line in options.file.read_text(encoding="utf-8").splitlines():
        try:
            record = json.loads(line)
            known = record["crash"] == VERSION
        except (ValueError, KeyError, TypeError):
            raise UsageError(f"{options.file} is no crash report: {line[:60]!r}") from None
        if not known:
            raise UsageError(f"{options.file} is of version {record['crash']}, this reads {VERSION}")
        print(line if options.json else crash_text(record))
    return 0


_COMMANDS = {"dump": _dump, "diff": _diff, "replay": _replay, "bisect": _bisect, "show": _show}

if __name__ == "__main__":
    sys.exit(main())
