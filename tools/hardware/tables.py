"""Tables of the documentation that are made from kept hardware reports: `python -m tools.hardware.tables`.

The command rewrites the parts of pages between `<!-- made: NAME -->` and `<!-- end -->`: figures, the list of
reports, and the last column of the tables of NVIDIA's generations and of AMD's targets. With `--check` it
changes nothing and fails where a page differs. `--add FILE` first keeps a report that somebody sent. That
report must fit docs/hardware/report.schema.json, identify no machine, and be of a GPU.

Rows of a scripted or emulated device are left out, because they do not measure hardware. A generation or a
target without a report whose ladder passed is *unproved*.

Not here: the reports (`tools.hardware_run`, docs/hardware). Next: `summary`, which reads a report's facts.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import jsonschema

from tools.arguments import REFUSED, command
from tools.hardware import share, summary
from tools.hardware.stage import REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Data = Mapping[str, Any]

REPORTS: Final = REPOSITORY / "docs/hardware"
PAGES: Final = ("docs/nv.md", "docs/gpu-kernels.md", "docs/hardware/README.md", "docs/amd.md")
SCHEMA: Final = REPORTS / "report.schema.json"
UNPROVED: Final = "*unproved*"
_MADE: Final = re.compile(r"(<!-- made: (?P<name>[^\n]+) -->\n)(?P<text>.*?)(<!-- end -->)", re.DOTALL)
_GENERATION: Final = re.compile(r"Generation\(name='([^']+)'")
_TARGET: Final = re.compile(r"'target': '(gfx\w+)'")
_NOT_HARDWARE: Final = ("scripted", "emulated", "-emu")
_TIMES: Final = ("ns", "us", "ms", "s")
_SAME: Final = {
    "record + args + encode + ring, one kernel": "one operation, host",
    "the same, then wait": "one operation, then wait",
    "256 kernels, nothing changed": "256 kernels replayed, nothing changed",
}
"""Case of this project -> the case of PyTorch that measures the same under another name."""
CHECKED: Final = "result checked"
"""The words in the note of a row whose whole result was compared with an independent computation."""


def reports(folder: Path = REPORTS) -> dict[str, Data]:
    """Return the kept reports by file name, the oldest first: a file name begins with the date."""
    paths = [path for path in sorted(folder.glob("*.json")) if path.name != SCHEMA.name]
    return {path.name: json.loads(path.read_text()) for path in paths}


def rows(report: Data) -> list[Data]:
    """Return the benchmark rows of a report that were measured on a GPU, in order."""
    found = [
        row
        for stage in report["stages"]
        if stage["name"] in ("benchmarks", "cuda")
        for row in (stage["facts"] or {}).get("rows", [])
    ]
    return [row for row in found if not any(word in row["device"].lower() for word in _NOT_HARDWARE)]


def figures(report: Data) -> str:
    """Return a Markdown table of the cases that both this driver and PyTorch measured, with the ratio.

    The ratio of the medians is above 1 where this driver is better: ours / theirs for rates, theirs / ours
    for times.
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


def proof(name: str, kept: Mapping[str, Data]) -> str:
    """Return "GPU, kernel driver" of the newest report whose ladder passed, or `UNPROVED`.

    `name` is the name of an NVIDIA generation or of an AMD target; only reports of it count. The GPU is its
    name without the vendor, up to the first word with a digit: "H100", "Instinct MI300X".
    """
    out = UNPROVED
    for report in kept.values():
        ladder: Data = next((s for s in report["stages"] if s["name"] == "ladder"), {})
        seen = str((ladder.get("facts") or {}).get("seen", ""))
        proved = [*_GENERATION.findall(seen), *_TARGET.findall(seen)]
        if ladder.get("status") == "passed" and name in proved and not emulated(report):
            model = re.sub(r"^(?:NVIDIA |AMD )?(\D*\S*).*", r"\1", summary.gpu(report["stages"]) or name)
            out = f"{model}, {summary.driver(report['stages'])}"
    return out


def emulated(report: Data) -> bool:
    """Return whether no GPU made a report: it is of a dry run, or of an emulated GPU."""
    return bool(report["dry"]) or "-emu" in str(report["device"])


def proofs(text: str, kept: Mapping[str, Data]) -> str:
    """Return a Markdown table with its last column, the hardware on which a row is proved, made anew.

    The first cell of a row has the driver's name of a generation or a target. Several names are in
    backquotes; then the first that is proved counts.
    """
    lines = text.splitlines()
    for at, line in enumerate(lines[2:], 2):
        cells = line.split("|")
        names = re.findall(r"`([^`]+)`", cells[1]) or [cells[1].strip()]
        found = [proof(name, kept) for name in names]
        cells[-2] = f" {next((one for one in found if one != UNPROVED), UNPROVED)} "
        lines[at] = "|".join(cells)
    return "\n".join(lines)


def results(kept: Mapping[str, Data]) -> str:
    """Return a Markdown table with a row for each report: GPU, kernel driver, commit, results of stages."""
    out = ["| report | GPU, kernel driver | commit | stages that passed | others |", "|---|---|---|---|---|"]
    for name, report in kept.items():
        stages = [
            stage for stage in report["stages"] if stage["name"] not in {"box", "packages", "after", "wheels"}
        ]
        told = [(stage["status"].startswith("passed"), summary.line(stage)) for stage in stages]
        of = f"{summary.gpu(report['stages']) or '-'}, {summary.driver(report['stages']) or '-'}"
        cells = ["; ".join(text for good, text in told if good is wanted) or "-" for wanted in (True, False)]
        link = f"[{name.removesuffix('.json')}]({name})"
        out.append(f"| {link} | {of} | {report['commit'][:8]} | {' | '.join(cells)} |")
    return "\n".join(out)


def kept_as(report: Data) -> str:
    """Return the file name of a report: date, GPU, kernel driver and commit.

    Raises `ValueError` for a report that does not fit the schema, identifies a machine, is of no GPU, or
    lacks the GPU's name, the kernel driver or the commit. The text says where, and what to do.
    """
    schema = jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text()))
    wrong = [
        f"{'/'.join(map(str, error.path)) or 'the report'}: {error.message[:200]}"
        for error in schema.iter_errors(report)
    ]
    if wrong:
        raise ValueError(f"wanted a report as {SCHEMA.name} says, saw {'; '.join(wrong[:5])}")
    if told := share.remaining(report):
        raise ValueError(
            f"wanted a report that identifies no machine, saw {'; '.join(told[:3])}\n"
            "hint: python -m tools.hardware.share FILE writes such a report"
        )
    if emulated(report):
        raise ValueError(
            f"wanted a report of a GPU, saw one of {report['device']}{', a dry run' * report['dry']}"
        )
    model, version = summary.gpu(report["stages"]), summary.driver(report["stages"])
    if not model or not version or not report["commit"]:
        raise ValueError(
            "wanted the GPU, its kernel driver and the commit, "
            f"saw {model!r}, {version!r}, {report['commit']!r}\n"
            "hint: the stage `box` finds the first two: run it on the machine with --only box,ladder"
        )
    words = re.findall(r"[a-z0-9]+", model.lower().removeprefix("nvidia "))
    return f"{report['written'][:10]}-{'-'.join(words[:3])}-{version}-{report['commit'][:8]}.json"


def made(page: str, kept: Mapping[str, Data]) -> str:
    """Return a page with the parts between its markers made anew.

    Raises `ValueError` for a marker with an unknown name, with a report that is not in `kept`, or for figures
    without a report.
    """

    def fill(match: re.Match[str]) -> str:
        name, _, argument = match["name"].partition(" ")
        makers: dict[str, Callable[[], str]] = {
            "figures": lambda: figures(kept[argument]),
            "generations": lambda: proofs(match["text"].strip(), kept),
            "results": lambda: results(kept),
        }
        if name not in makers or (argument not in kept and (argument or name == "figures")):
            raise ValueError(
                f"wanted 'figures REPORT' of {', '.join(kept)}, 'results' or 'generations'; "
                f"saw {match['name']!r}"
            )
        return f"{match[1]}{makers[name]()}\n{match[4]}"

    return _MADE.sub(fill, page)


def main(argv: Sequence[str] | None = None) -> int:
    """Rewrite the pages, or with `--check` name those that differ and return 1."""
    parser = command("tools.hardware.tables", __doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; fail where a page differs")
    parser.add_argument(
        "--add", metavar="FILE", help="keep this report in docs/hardware, then make the tables"
    )
    options = parser.parse_args(argv)
    if options.add:
        try:
            report = json.loads(Path(options.add).read_text())
            path = REPORTS / kept_as(report)
        except (OSError, ValueError) as error:
            sys.stderr.write(f"error: {error}\n")
            return REFUSED
        path.write_text(json.dumps(report, indent=1) + "\n")
        sys.stderr.write(f"kept: {path}\n")
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
