"""The short form of a hardware run: one page with the GPU, what works, what does not, and what to send.

It is computed from the stages of the report, as JSON data, so that old reports can be read as well.

Not here: the stages (`tools.hardware_run`). Next: `tools.hardware.stage`, which writes the report.
"""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Data = Mapping[str, Any]

_VERSIONS: Final = ("/proc/driver/nvidia/version", "/sys/module/amdgpu/version")
_VERSION: Final = re.compile(r"\d+\.\d+(?:\.\d+)*")
_MODEL: Final = re.compile(r"Model:\s*(.+)")
_MARKETING: Final = re.compile(r"Marketing Name:\s*(AMD (?:Radeon|Instinct)[^\n]*)")


def gpu(stages: Sequence[Data]) -> str:
    """Return the GPU's name as its driver or library reports it; "" if no stage has found one.

    Without such a name it is the AMD target that the ladder has seen, for example "gfx1100".
    """
    facts = _facts(stages, "box")
    models = [_MODEL.search(str(text)) for text in facts.get("files", {}).values()]
    names = [found[1].strip() for found in models if found]
    cuda = facts.get("cuda")
    names += [cuda["name"]] if isinstance(cuda, dict) and cuda.get("name") else []
    names += [found.strip() for found in _MARKETING.findall(str(facts.get("rocminfo", "")))]
    names += [
        seen["target"] for seen in _facts(stages, "ladder").get("seen", {}).values() if "target" in seen
    ]
    return names[0] if names else ""


def driver(stages: Sequence[Data]) -> str:
    """Return the version of the GPU's kernel driver; "" if no stage has found one."""
    files = _facts(stages, "box").get("files", {})
    texts = [str(files[path]) for path in _VERSIONS if path in files]
    texts += [
        str(seen["version"])
        for seen in _facts(stages, "ladder").get("seen", {}).values()
        if "version" in seen
    ]
    found = [match[0] for text in texts if (match := _VERSION.search(text))]
    return found[0] if found else ""


def failed(stages: Sequence[Data], *, device: str, choices: str, dry: bool) -> list[dict[str, str]]:
    """Return a row for each stage that did not pass: its status, the reason, its log, and how to repeat it.

    `device` is the argument of `--device`; `choices` are the values of the driver's uncertain constants that
    work so far; `dry` repeats with `--dry`. A stage that still runs has no row.
    """
    out = []
    for stage in stages:
        if str(stage["status"]).startswith(("passed", "running")):
            continue
        again = ["python", "-m", "tools.hardware_run", "--out", "again", "--only", str(stage["name"])]
        again += ["--device", device, *(["--choices", choices] if choices != "default" else [])]
        out.append(
            {
                "stage": str(stage["name"]),
                "status": str(stage["status"]),
                "reason": str(stage["reason"]),
                "log": f"{stage['name']}.log in evidence.tar.gz" if stage["command"] else "",
                "again": shlex.join([*again, *["--dry"] * dry]),
            }
        )
    return out


def page(report: Data, *, sent: str = "") -> str:
    """Return a report as one page of text: what works, what does not, what to send, the first failure last.

    `sent` is the file to send; "" if none was written.
    """
    ran = [stage for stage in report["stages"] if stage["status"] != "running"]
    name = gpu(ran) or f"no GPU that a stage could name ({report['device']})"
    out = [f"{name}, kernel driver {driver(ran) or 'unknown'}, commit {report['commit'][:8] or 'unknown'}"]
    passed = [stage["status"].startswith("passed") for stage in ran]
    works = [f"  {line(stage)}" for stage, good in zip(ran, passed, strict=True) if good]
    lacks = [f"  {line(stage)}" for stage, good in zip(ran, passed, strict=True) if not good]
    out += ["", "works:", *(works or ["  nothing"])]
    out += ["", "does not work, or did not run:", *(lacks or ["  nothing: every stage passed"])]
    if sent:
        out += ["", f"send: {sent}", "  read it, then attach it as docs/how-to/send-a-report.md says"]
    else:
        out += ["", "send: nothing yet; `python -m tools.hardware.share REPORT` writes what can be sent"]
    bad = [stage for stage in ran if stage["status"].startswith(("failed", "hung", "died"))]
    return "\n".join([*out, *(_first(report, bad[0]) if bad else [])]) + "\n"


def line(stage: Data) -> str:
    """Return a stage in one line: its name, its status unless it passed, and the counts that it found."""
    facts = stage["facts"] or {}
    counts = [f"{facts[what]} {what}" for what in ("passed", "failed", "error", "skipped") if facts.get(what)]
    if "rungs" in facts:
        whole = [how == "pass" for how in facts["rungs"].values()]
        counts.append(f"{sum(whole)} of {len(whole)} rungs, choices {facts['choices']}")
    counts += [f"{len(facts['rows'])} figures"] if facts.get("rows") else []
    told = [] if stage["status"] == "passed" else [stage["status"]]
    return " ".join([f"{stage['name']}:", ", ".join([*told, *counts])]) if told or counts else stage["name"]


def _first(report: Data, stage: Data) -> list[str]:
    """Return the first failure: what was seen, its cure, its log and the command that repeats it."""
    lines = [line.strip() for line in str(stage["reason"]).splitlines() if line.strip()]
    hints = [
        part.split("hint:", 1)[1].strip() for line in lines for part in line.split("; ") if "hint:" in part
    ]
    seen = [line.split("hint:", 1)[0].strip(" ;") for line in lines]
    row = next((row for row in report.get("failed", ()) if row["stage"] == stage["name"]), None)
    cure = hints[0] if hints else "not known: send the report, or read docs/debugging.md"
    out = ["", f"first failure: {stage['name']}, {stage['status']}", *(f"  {line}" for line in seen if line)]
    out += [f"  log: {row['log']}", f"  again: {row['again']}"] if row else []
    return [*out, f"  cure: {cure}"]


def _facts(stages: Sequence[Data], name: str) -> Data:
    return next((stage["facts"] for stage in stages if stage["name"] == name and stage["facts"]), {})
