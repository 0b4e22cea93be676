"""The host machine: cores and memory that this process may use, and the name of its architecture.

Not here: code generation for the architecture (`compiler.targets.host.target`). Next: `driver`, the caller.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator

from drivers.kernel import Kernel
from hcq.errors import DriverError

IDENTITY = ("model name", "flags", "Features", "CPU implementer", "CPU variant", "CPU part")
"""Lines of /proc/cpuinfo that identify the processor that code was compiled for."""
CGROUP = "/sys/fs/cgroup"


def identify(kernel: Kernel) -> tuple[str, str]:
    """Return the processor's display name and the name of its architecture.

    The architecture is the machine and a digest of model and features: "x86_64-1a2b3c4d".
    """
    machine = os.uname().machine
    first, _, _ = _text(kernel, "/proc/cpuinfo").partition("\n\n")
    lines = dict(line.split("\t", 1) for line in first.splitlines() if "\t" in line)
    facts = {name: lines[name].strip(" \t:") for name in IDENTITY if name in lines}
    digest = hashlib.sha256(repr(sorted(facts.items())).encode()).hexdigest()[:8]
    return facts.get("model name", machine), f"{machine}-{digest}"


def cores(kernel: Kernel) -> int:
    """Return the number of cores that this process may use, by its affinity and the quotas of control groups.

    At least 1; a quota of parts of cores is rounded down.
    """
    count = len(os.sched_getaffinity(0))
    for folder in _groups(kernel):
        quota, _, period = _text(kernel, f"{folder}/cpu.max").partition(" ")
        if quota.isdecimal() and period.strip().isdecimal():
            count = min(count, max(1, int(quota) // int(period)))
    return count


def memory_bytes(kernel: Kernel) -> int:
    """Return the most memory that this process may use, in bytes; 1 GiB if nothing states it."""
    limits = [
        1024 * int(line.split()[1])
        for line in _text(kernel, "/proc/meminfo").splitlines()
        if line.startswith("MemTotal:")
    ]
    for folder in _groups(kernel):
        limit = _text(kernel, f"{folder}/memory.max").strip()
        if limit.isdecimal():
            limits.append(int(limit))
    return min(limits, default=1 << 30)


def _groups(kernel: Kernel) -> Iterator[str]:
    """Yield the folders of this process's control group (version 2) and of its parents."""
    for line in _text(kernel, "/proc/self/cgroup").splitlines():
        number, _, path = line.split(":", 2)
        if number == "0":
            while True:
                yield CGROUP + path.rstrip("/")
                if path in {"", "/"}:
                    break
                path = path.rpartition("/")[0]


def _text(kernel: Kernel, path: str) -> str:
    """Return the text of a file; "" if it cannot be read."""
    try:
        return kernel.read_file(path).decode(errors="replace")
    except DriverError:  # a container may hide the file: then the file sets no limit
        return ""
