"""The vendor of a machine's GPU, and what the machine lacks for a hardware run.

Not here: the description of the machine (`box`), from which `missing` finds what is lacking. Next: `stage`,
how a stage of the run is executed.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tools.hardware.stage import Run


def detected(dev: Path) -> str:
    """Return the vendor of this machine's GPU: "amd" if only AMD's node is in `dev`, else "nv"."""
    return "amd" if (dev / "kfd").exists() and not (dev / "nvidiactl").exists() else "nv"


def missing(run: Run) -> str:
    """Return a text of what the machine lacks for this run, with a hint; "" if nothing is missing.

    It is also "" for a dry run, an emulated GPU, and a run whose stage `box` gave no facts.
    """
    facts = next((stage.facts for stage in run.stages if stage.name == "box" and stage.facts), None)
    if run.options.dry or run.options.emulated or facts is None:
        return ""
    nodes = [str(node).split(" ", 1)[0] for node in facts.get("nodes after", facts.get("nodes", []))]
    lacks, hint = (_amd_lacks if run.options.vendor == "amd" else _nv_lacks)(nodes, facts)
    if not lacks:
        return ""
    return (
        f"this machine lacks: {'; '.join(lacks)}\nhint: {hint}; "
        "`python -m tools.hardware_run --dry` runs every stage without a GPU\n"
    )


def _nv_lacks(nodes: Sequence[str], facts: Mapping[str, object]) -> tuple[list[str], str]:
    """Return what a machine with an NVIDIA GPU lacks, and a hint."""
    lacks = [
        (not any(node == "/dev/nvidiactl" for node in nodes), "the control node /dev/nvidiactl"),
        (not any(re.fullmatch(r"/dev/nvidia\d+", node) for node in nodes), "the node of a GPU, /dev/nvidiaN"),
        (not any(node == "/dev/nvidia-uvm" for node in nodes), "the node /dev/nvidia-uvm"),
        (not _driver(facts), "the kernel driver (no version under /proc/driver/nvidia, no module)"),
    ]
    hint = "load the modules (modprobe nvidia nvidia-uvm), or give the container the GPU (--gpus all)"
    return [what for lack, what in lacks if lack], hint


def _amd_lacks(nodes: Sequence[str], facts: Mapping[str, object]) -> tuple[list[str], str]:
    """Return what a machine with an AMD GPU lacks, and a hint."""
    files = facts.get("files")
    gpus = isinstance(files, dict) and any("/kfd/topology/nodes/" in path for path in files)
    lacks = [
        ("/dev/kfd" not in nodes, "the node /dev/kfd"),
        (not any(node.startswith("/dev/dri/renderD") for node in nodes), "a render node, /dev/dri/renderDN"),
        (not gpus, "KFD's topology (nothing under /sys/class/kfd)"),
    ]
    hint = (
        "load the module (modprobe amdgpu, of a kernel with CONFIG_HSA_AMD), or give the container the GPU "
        "(--device /dev/kfd --device /dev/dri --group-add render)"
    )
    return [what for lack, what in lacks if lack], hint


def _driver(facts: Mapping[str, object]) -> bool:
    """Return whether NVIDIA's kernel driver shows in /proc, /dev or the log; a sandbox shows /dev only."""
    files, nodes = (str(facts.get(name, "")) for name in ("files", "nodes"))
    return (
        "/proc/driver/nvidia" in files or "/dev/nvidia" in nodes or "NVRM" in str(facts.get("kernel log", ""))
    )
