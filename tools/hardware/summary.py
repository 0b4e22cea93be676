"""The short form of a hardware run: the GPU, its driver, what failed, and the command that repeats it.

It is computed from the stages of the report, as data, so that old reports can be read as well.

Not here: the stages (`tools.hardware_run`), the file that holds the result (`tools.hardware.stage`).
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


def gpu(stages: Sequence[Data]) -> str:
    """Return the GPU's name as its driver reports it; "" if no stage has found one."""
    facts = _facts(stages, "box")
    models = [_MODEL.search(str(text)) for text in facts.get("files", {}).values()]
    names = [found[1].strip() for found in models if found]
    cuda = facts.get("cuda")
    names += [cuda["name"]] if isinstance(cuda, dict) and cuda.get("name") else []
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

    `device` is the one given to `--device`; `choices` are the values that work so far.
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


def _facts(stages: Sequence[Data], name: str) -> Data:
    return next((stage["facts"] for stage in stages if stage["name"] == name and stage["facts"]), {})
