"""The processor's code: caching, checks, compilation for other machines; cores and memory of the host."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from compiler.llvm import Machine, emit_object
from drivers.cpu.host import FUNCTIONS
from drivers.cpu.image import SOURCES, processor_code, processor_key
from drivers.cpu.machine import cores, identify, memory_bytes
from drivers.cpu.native import translate
from drivers.elf import Elf
from drivers.kernel import LinuxKernel
from hcq.config import override
from hcq.errors import DriverError
from hcq.objectfile import is_whole
from hcq.store import Store
from tests.children import python

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.slow
def test_warm_start_loads_neither_translator_nor_llvm(tmp_path: Path) -> None:
    text = (
        "import sys\n"
        "from drivers.cpu import DRIVER\n"
        "DRIVER.open(0, None).close()\n"
        "print(sorted({'cffi', 'llvmlite', 'compiler.llvm', 'drivers.cpu.native',"
        " 'drivers.cpu.processor'} & set(sys.modules)))\n"
    )
    environment = {**os.environ, "HCQ_CACHE": str(tmp_path)}
    seen = [python("-c", text, env=environment) for _ in range(2)]
    assert "drivers.cpu.native" in seen[0].stdout
    assert seen[1].stdout == "[]\n"


@pytest.mark.sampled(3)
@pytest.mark.parametrize("damage", ["cut", "changed", "empty"])
def test_damaged_cache_is_rebuilt(tmp_path: Path, damage: str) -> None:
    kernel = LinuxKernel()
    with override(cache=tmp_path):
        processor_code(kernel).close()
        (path,) = [path for path in (tmp_path / "cpu").rglob("*") if path.is_file()]
        whole = path.read_bytes()
        broken = {"cut": whole[:-100], "changed": whole[:500] + b"x" + whole[501:], "empty": b""}[damage]
        path.write_bytes(broken)
        processor_code(kernel).close()
        assert path.read_bytes() == whole


@pytest.mark.sampled(3)
@pytest.mark.parametrize("payload", [b"", b"no code", b"\x7fELF\x02\x01" + bytes(200)])
def test_a_sound_entry_that_is_no_code_is_rebuilt(tmp_path: Path, payload: bytes) -> None:
    kernel, key = LinuxKernel(), processor_key(os.uname().machine)
    with override(cache=tmp_path):
        Store(tmp_path).put("cpu", key, payload)
        processor_code(kernel).close()
        assert is_whole(Store(tmp_path).get("cpu", key) or b"")


def test_cache_that_cannot_be_written_costs_only_time(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with override(cache=tmp_path / "file"):
        processor_code(LinuxKernel()).close()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_processor_is_pure_code_without_relocations(machine: str) -> None:
    features = "+lse" if machine == "aarch64" else ""
    target = Machine(f"{machine}-unknown-linux-gnu", "generic", features)
    elf = Elf(emit_object(translate(FUNCTIONS, machine), target, level=2))
    assert list(elf.relocations()) == [] or all(
        elf.sections[r.section].name == ".eh_frame" for r in elf.relocations()
    )
    assert {s.name for s in elf.symbols if s.section == 0} <= {""}
    assert {f.__name__ for f in FUNCTIONS} <= {s.name for s in elf.symbols}


class Files(LinuxKernel):
    """A Linux with other files."""

    def __init__(self, files: dict[str, str]) -> None:
        super().__init__()
        self._files = files

    def read_file(self, path: str) -> bytes:
        if path not in self._files:
            raise DriverError("read", 2, "ENOENT", arguments=path)
        return self._files[path].encode()


CPUINFO = (
    "processor\t: 0\nmodel name\t: Fast 9000\nflags\t\t: avx2 fma\n\nprocessor\t: 1\nmodel name\t: Other\n"
)


def test_every_module_of_the_processor_is_in_its_cache_key() -> None:
    modules = {f.__module__ for f in FUNCTIONS}
    assert {f"{module.removeprefix('drivers.cpu.')}.py" for module in modules} <= set(SOURCES)


def test_architecture_changes_with_model_and_features_only() -> None:
    name, arch = identify(Files({"/proc/cpuinfo": CPUINFO}))
    assert name == "Fast 9000"
    assert identify(Files({"/proc/cpuinfo": CPUINFO.replace("Other", "Third")}))[1] == arch
    assert identify(Files({"/proc/cpuinfo": CPUINFO.replace("fma", "fma4")}))[1] != arch


def test_cores_are_cut_by_the_quota_of_any_control_group() -> None:
    have = len(os.sched_getaffinity(0))
    files = {"/proc/self/cgroup": "0::/a/b\n", "/sys/fs/cgroup/a/b/cpu.max": "max 100000\n"}
    assert cores(Files(files)) == have
    assert cores(Files({**files, "/sys/fs/cgroup/a/cpu.max": "100000 100000\n"})) == 1
    assert cores(Files({**files, "/sys/fs/cgroup/a/cpu.max": "50000 100000\n"})) == 1
    assert cores(Files({})) == have


def test_memory_is_cut_by_the_limit_of_a_control_group() -> None:
    files = {"/proc/meminfo": "MemTotal:  1000 kB\n", "/proc/self/cgroup": "0::/\n"}
    assert memory_bytes(Files(files)) == 1_024_000
    assert memory_bytes(Files({**files, "/sys/fs/cgroup/memory.max": "5000\n"})) == 5000
    assert memory_bytes(Files({**files, "/sys/fs/cgroup/memory.max": "max\n"})) == 1_024_000
