"""A description of a machine with a GPU, one JSON line for each fact, with the output of the vendors' tools.

    python -m tools.hardware.box

A fact whose collection fails has the error as its text, and the exit status is 0. The command changes
nothing, except that CUDA's library creates missing device nodes, as in any CUDA program. Each fact is written
when it is known, so a call that hangs does not lose the facts before it.

Not here: the GPU as this project's drivers see it (`tools.bringup`). Next: `machine`, what the machine lacks.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import resource
import stat
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tools.arguments import command
from tools.bringup.evidence import kernel_log

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_FILES = (
    "/proc/driver/nvidia/version",
    "/proc/driver/nvidia/params",
    "/proc/driver/nvidia/gpus/*/information",
    "/sys/module/amdgpu/version",
    "/sys/module/amdgpu/parameters/*",
    "/sys/class/kfd/kfd/topology/nodes/*/name",
    "/sys/class/kfd/kfd/topology/nodes/*/properties",
    "/sys/class/kfd/kfd/topology/nodes/*/mem_banks/*/properties",
    "/sys/class/kfd/kfd/topology/nodes/*/io_links/*/properties",
)
_NODES = ("nvidia*", "kfd", "dri/*")
_WORDS = ("nvrm", "nvidia", "amdgpu", "kfd")
"""Words that mark the lines about GPUs in the kernel's log and in /proc."""


def nodes() -> list[str]:
    """Return a line for each device node: path, mode, owner, major and minor number."""
    out = []
    for path in sorted(found for pattern in _NODES for found in Path("/dev").glob(pattern)):
        info = path.stat()
        number = f"{os.major(info.st_rdev)},{os.minor(info.st_rdev)}" if stat.S_ISCHR(info.st_mode) else "-"
        out.append(f"{path} {stat.filemode(info.st_mode)} {info.st_uid}:{info.st_gid} {number}")
    return out


def system() -> dict[str, object]:
    """Return user, kernel, Python, processors, the limit of locked memory, modules and device majors."""
    lines = {
        name: [one for one in _text(name).splitlines() if any(word in one.lower() for word in _WORDS)]
        for name in ("/proc/devices", "/proc/modules")
    }
    return {
        "uid": os.getuid(), "uname": " ".join(platform.uname()),
        "python": sys.version, "executable": sys.executable,
        "cpus": os.cpu_count(), "memlock": resource.getrlimit(resource.RLIMIT_MEMLOCK), **lines,
    }  # fmt: skip


def files() -> dict[str, str]:
    """Return path -> text of the kernel drivers' files under /proc and /sys, or why one cannot be read."""
    found = [path for pattern in _FILES for path in sorted(Path("/").glob(pattern[1:]))]
    return {str(path): _text(str(path)) for path in found}


def _text(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError as error:
        return f"cannot be read: {error}"


def _log() -> list[str]:
    return kernel_log(_WORDS)


def _printed(tool: str) -> str:
    """Return what a vendor's tool prints; or env's message if it is not installed. It has 20 seconds."""
    done = subprocess.run(
        ["/usr/bin/env", tool], capture_output=True, check=False, timeout=20, stdin=subprocess.DEVNULL
    )
    return (done.stdout + done.stderr).decode(errors="replace")


def cuda() -> dict[str, object]:
    """Return the status of each call of CUDA's driver library, its version, and the first device's name.

    The library opens the GPU and creates missing nodes. Raises `OSError` if it is not installed.
    """
    library = ctypes.CDLL("libcuda.so.1")
    facts: dict[str, object] = {"cuInit": library.cuInit(0)}
    number = ctypes.c_int()
    facts["cuDriverGetVersion"] = library.cuDriverGetVersion(ctypes.byref(number))
    facts["version"] = number.value
    facts["cuDeviceGetCount"] = library.cuDeviceGetCount(ctypes.byref(number))
    facts["devices"] = number.value
    name = ctypes.create_string_buffer(256)
    if not facts["cuDeviceGetCount"] and number.value:
        facts["cuDeviceGetName"] = library.cuDeviceGetName(name, 256, 0)
        facts["name"] = name.value.decode(errors="replace")
    return facts


FACTS: tuple[tuple[str, Callable[[], object]], ...] = (
    ("system", system),
    ("nodes", nodes),
    ("files", files),
    ("kernel log", _log),
    ("nvidia-smi", partial(_printed, "nvidia-smi")),
    ("rocminfo", partial(_printed, "rocminfo")),
    ("cuda", cuda),
    ("nodes after", nodes),
    ("kernel log after", _log),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Write all facts to stdout; return 0."""
    command("tools.hardware.box", __doc__).parse_args(argv)
    for name, ask in FACTS:
        try:
            value = ask()
        except Exception as error:  # noqa: BLE001 - any failure is a fact to report
            value = f"{type(error).__name__}: {error}"
        sys.stdout.write(json.dumps({name: value}, default=str) + "\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
