"""Tables of the documentation that are made from kept hardware reports: `python -m tools.hardware.tables`.

The command rewrites the part of a page between `<!-- made: NAME -->` and `<!-- end -->`, and the last column
of README's table of generations. With `--check` it changes nothing and fails where a page differs.

Rows of a scripted or emulated device are left out: they say nothing about hardware. A generation without a
report whose ladder ended and passed is *unproved*.

Not here: the reports (`tools.hardware_run`, docs/hardware).
"""

from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING, Any, Final

from tools.arguments import command
from tools.hardware import summary
from tools.hardware.stage import REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    Data = Mapping[str, Any]

REPORTS: Final = REPOSITORY / "docs/hardware"
PAGES: Final = ("README.md", "docs/gpu-kernels.md", "docs/hardware/README.md")
UNPROVED: Final = "*unproved*"
_MADE: Final = re.compile(r"(<!-- made: (?P<name>[^\n]+) -->\n)(?P<text>.*?)(<!-- end -->)", re.DOTALL)
_GENERATION: Final = re.compile(r"Generation\(name='([^']+)'")
_NOT_HARDWARE: Final = ("scripted", "emulated", "-emu")
_TIMES: Final = ("ns", "us", "ms", "s")
_SAME: Final = {
    "record + args + encode + ring, one kernel": "one operation, host",
    "the same, then wait": "one operation, then wait",
    "256 kernels, nothing changed": "256 kernels replayed, nothing changed",
}
"""Cases of ours beside those of PyTorch that measure the same under another name."""
CHECKED: Final = "result checked"
"""What the note of a row says whose whole result was compared with an independent computation."""


def reports(folder: Path = REPORTS) -> dict[str, Data]:
    """Return the kept reports of complete runs by file name, the oldest first."""
    read = {path.name: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}
    return {name: data for name, data in read.items() if "stages" in data}


def rows(report: Data) -> list[Data]:
    """Return the benchmark rows of a report that a GPU gave, in order."""
    found = [
        row
        for stage in report["stages"]
        if stage["name"] in ("benchmarks", "cuda")
        for row in (stage["facts"] or {}).get("rows", [])
    ]
    return [row for row in found if not any(word in row["device"].lower() for word in _NOT_HARDWARE)]


def figures(report: Data) -> str:
    """Return the work that both this driver and PyTorch did, with the ratio of their medians, as Markdown.

    The ratio is above 1 where this driver is better: of rates ours / theirs, of times theirs / ours.
    """
    theirs = {row["case"]: row for row in rows(report) if row["device"].startswith("cuda")}
    out = ["| work | unit | ours | PyTorch | ratio | whole result checked |", "|---|---|---|---|---|---|"]
    for row in rows(report):
        case = _SAME.get(row["case"], row["case"])
        if row["device"].startswith("cuda") or case not in theirs:
            continue
        ours, other = float(row["median"]), float(theirs[case]["median"])
        ratio = other / ours if row["unit"] in _TIMES else ours / other
        checked = "yes" if CHECKED in row["note"] else "no"
        out.append(f"| {case} | {row['unit']} | {_short(ours)} | {_short(other)} | {ratio:.2f} | {checked} |")
    return "\n".join(out)


def _short(number: float) -> str:
    return f"{number:,.0f}" if number >= 1000 else f"{number:.4g}"


def proof(generation: str, kept: Mapping[str, Data]) -> str:
    """Return GPU and driver of the newest report whose ladder passed on a generation, or `UNPROVED`."""
    out = UNPROVED
    for report in kept.values():
        ladder: Data = next((s for s in report["stages"] if s["name"] == "ladder"), {})
        seen = str((ladder.get("facts") or {}).get("seen", ""))
        if ladder.get("status") == "passed" and generation in _GENERATION.findall(seen):
            model = summary.gpu(report["stages"]).removeprefix("NVIDIA ").split(" ")[0]
            out = f"{model}, {summary.driver(report['stages'])}"
    return out


def generations(text: str, kept: Mapping[str, Data]) -> str:
    """Return README's table of generations with the column of hardware made anew.

    The first cell of a row ends with the name that the driver gives the generation.
    """
    lines = text.splitlines()
    for at, line in enumerate(lines[2:], 2):
        cells = line.split("|")
        cells[-2] = f" {proof(cells[1].strip(), kept)} "
        lines[at] = "|".join(cells)
    return "\n".join(lines)


def made(page: str, kept: Mapping[str, Data]) -> str:
    """Return a page with its made parts made anew; raises `ValueError` for a part without a maker."""

    def fill(match: re.Match[str]) -> str:
        name, _, argument = match["name"].partition(" ")
        makers: dict[str, Callable[[], str]] = {
            "figures": lambda: figures(kept[argument]),
            "generations": lambda: generations(match["text"].strip(), kept),
        }
        if name not in makers or (argument and argument not in kept):
            raise ValueError(
                f"wanted 'figures REPORT' of {', '.join(kept)}, or 'generations'; saw {match['name']!r}"
            )
        return f"{match[1]}{makers[name]()}\n{match[4]}"

    return _MADE.sub(fill, page)


def main(argv: Sequence[str] | None = None) -> int:
    """Rewrite the pages, or with `--check` name those that differ and return 1."""
    parser = command("tools.hardware.tables", __doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; fail where a page differs")
    options = parser.parse_args(argv)
    kept, differ = reports(), []
    for name in PAGES:
        path = REPOSITORY / name
        before = path.read_text()
        after = made(before, kept)
        if after != before and options.check:
            differ.append(name)
        elif after != before:
            path.write_text(after)
    if differ:
        sys.stderr.write(f"not made from the kept reports: {', '.join(differ)}\n")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
