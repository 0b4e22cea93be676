"""KFD's structures, requests and constants as gcc lays them out from the system's kfd_ioctl.h.

The header knows one minor of the interface, 1.11 on Debian 12. What is newer cannot be compiled here; it is
checked against the table of facts alone, and `test_what_was_compiled` says where the line runs.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.facts import amd_faults, amd_kfd
from tests.facts import amd_kfd_header as facts
from tests.facts.layout_probe import c_structs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HEADER = Path("/usr/include/linux/kfd_ioctl.h")
STRUCTS = c_structs(facts.STRUCTS)
_NEWER = 12
"""The first minor with structures that Debian 12's header lacks."""


class Probe(NamedTuple):
    """What the system's header says."""

    minor: int
    names: dict[str, int]
    """Sizes, offsets, requests and constants by the expressions that asked for them."""
    requests: frozenset[str]
    """Names of all requests that the header defines."""


def _run(*command: str, given: str = "") -> str:
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _questions(minor: int) -> Iterator[str]:
    for name, struct in STRUCTS.items():
        if struct.since > minor:
            continue
        yield f"sizeof(struct {name})"
        for _, _, field in struct.fields:
            until = facts.FIELDS_UNTIL.get((name, field), minor + 1)
            if facts.FIELDS_SINCE.get((name, field), 1) <= minor < until:
                yield f"offsetof(struct {name}, {field})"
                yield f"sizeof(((struct {name} *)0)->{field})"
        if struct.call:
            yield f"AMDKFD_IOC_{struct.call}"
    for name, (_, since) in facts.CONSTANTS.items():
        if since <= minor:
            yield name


@pytest.fixture(scope="module")
def probe(tmp_path_factory: pytest.TempPathFactory) -> Probe:
    """Compile and run a program that prints what the header says."""
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("no gcc found, which compiles the probe")
    if not HEADER.exists():
        pytest.skip(f"no {HEADER} found (linux-libc-dev), which the probe compiles")
    folder = tmp_path_factory.mktemp("kfd")
    # The header wants drm/drm.h, of another package, for the integer types alone.
    (folder / "drm").mkdir()
    (folder / "drm" / "drm.h").write_text("#include <linux/types.h>\n")
    includes = ("-I", str(folder))
    defines = _run(compiler, *includes, "-E", "-dM", "-", given="#include <linux/kfd_ioctl.h>\n")
    minor = int(re.findall(r"KFD_IOCTL_MINOR_VERSION (\d+)", defines)[0])
    asked = list(_questions(minor))
    program = "\n".join(
        [
            "#include <linux/kfd_ioctl.h>",
            "#include <stddef.h>",
            "#include <stdio.h>",
            "int main(void) {",
            *(f'  printf("%llu\\n", 0xffffffffULL & (unsigned long long)({text}));' for text in asked),
            "  return 0;",
            "}",
        ]
    )
    binary = folder / "probe"
    _run(compiler, *includes, "-w", "-x", "c", "-", "-o", str(binary), given=program)
    answers = [int(line) for line in _run(str(binary)).split()]
    requests = frozenset(re.findall(r"^#define AMDKFD_IOC_(\w+)", defines, re.MULTILINE))
    return Probe(minor, dict(zip(asked, answers, strict=True)), requests)


def test_sizes_are_those_that_gcc_lays_out(probe: Probe):
    for name, struct in STRUCTS.items():
        if struct.since > probe.minor:
            continue
        sizes = [old for (n, since), old in facts.SIZES_BEFORE.items() if n == name and since > probe.minor]
        assert probe.names[f"sizeof(struct {name})"] == [*sizes, struct.size][0], name


def test_fields_are_where_gcc_puts_them(probe: Probe):
    for name, struct in STRUCTS.items():
        for offset, size, field in struct.fields:
            if f"offsetof(struct {name}, {field})" not in probe.names:
                since = max(struct.since, facts.FIELDS_SINCE.get((name, field), 1))
                assert since > probe.minor or facts.FIELDS_UNTIL[name, field] <= probe.minor, (name, field)
                continue
            seen = (
                probe.names[f"offsetof(struct {name}, {field})"],
                probe.names[f"sizeof(((struct {name} *)0)->{field})"],
            )
            assert seen == (offset, size), (name, field)


def test_requests_are_those_that_gcc_computes(probe: Probe):
    for name, struct in STRUCTS.items():
        if struct.call and struct.since <= probe.minor:
            whole = amd_kfd.IOCTLS[struct.call][1]
            if (name, 17) in facts.SIZES_BEFORE and probe.minor < 17:
                whole = amd_kfd.CREATE_QUEUE_1_11[1]
            assert probe.names[f"AMDKFD_IOC_{struct.call}"] == whole, struct.call


def test_constants_are_those_of_the_header(probe: Probe):
    for name, (value, since) in facts.CONSTANTS.items():
        if since <= probe.minor:
            assert probe.names[name] == value, name


def test_header_has_no_request_that_the_facts_lack(probe: Probe):
    known = {struct.call for struct in STRUCTS.values() if struct.call and struct.since <= probe.minor}
    known |= facts.DEPRECATED_CALLS.keys()
    assert probe.requests >= known
    assert probe.requests == known or probe.minor > facts.NEWEST_MINOR


def test_what_was_compiled(probe: Probe, record_property: Callable[[str, object], None]):
    compiled = sorted(name for name, struct in STRUCTS.items() if struct.since <= probe.minor)
    newer = sorted(name for name, struct in STRUCTS.items() if struct.since > probe.minor)
    record_property("KFD minor of the header", probe.minor)
    record_property("structures from facts alone", newer)
    said = f"{HEADER}: KFD 1.{probe.minor}; {len(compiled)} structures compiled, from facts alone: {newer}"
    print(said)  # noqa: T201 - shown by -s and by -rP: what the system's header could not prove
    assert probe.minor >= 11, "the driver wants 1.11 or later"
    assert len(compiled) + len(newer) == len(STRUCTS)


def test_every_call_of_the_fact_table_has_a_structure():
    calls = {struct.call: struct for struct in STRUCTS.values() if struct.call}
    assert {name: row[2] for name, row in amd_kfd.IOCTLS.items()} == {
        name: struct.size for name, struct in calls.items()
    }


def test_additions_since_1_12_are_those_of_the_fact_sheet():
    newer = {struct.call or name: struct.since for name, struct in STRUCTS.items() if struct.since >= _NEWER}
    assert newer == {
        "EXPORT_DMABUF": 12,
        "RUNTIME_ENABLE": 13,
        "DBG_TRAP": 13,
        "kfd_context_save_area_header": 13,
        "kfd_hsa_signal_event_data": 14,
    }
    gates = amd_kfd.VERSION_GATES
    assert {name: newer[name] for name in ("EXPORT_DMABUF", "RUNTIME_ENABLE")} == {
        name: gates[name][1] for name in ("EXPORT_DMABUF", "RUNTIME_ENABLE")
    }
    assert newer["kfd_hsa_signal_event_data"] == gates["event_age"][1]
    assert facts.CONSTANTS["KFD_IOC_ALLOC_MEM_FLAGS_CONTIGUOUS"][1] == gates["CONTIGUOUS"][1]
    assert facts.CONSTANTS["KFD_IOC_QUEUE_TYPE_SDMA_BY_ENG_ID"][1] == gates["SDMA_BY_ENG_ID"][1]
    assert set(facts.FIELDS_SINCE.values()) == {gates["SDMA_BY_ENG_ID"][1]}


@pytest.mark.parametrize(
    ("prefix", "table"),
    [
        ("KFD_IOC_QUEUE_TYPE_", amd_kfd.QUEUE_TYPES),
        ("KFD_IOC_ALLOC_MEM_FLAGS_", {name: 1 << bit for name, bit in amd_kfd.ALLOC_FLAGS.items()}),
        ("KFD_IOC_WAIT_RESULT_", amd_kfd.WAIT_RESULTS),
        ("KFD_IOCTL_SVM_ATTR_", amd_kfd.SVM_ATTRIBUTES),
        ("KFD_IOC_CACHE_POLICY_", amd_kfd.MEMORY_POLICIES),
    ],
)
def test_constants_of_both_tables_agree(prefix: str, table: dict[str, int]):
    constants = facts.CONSTANTS.items()
    assert {name.removeprefix(prefix): row[0] for name, row in constants if prefix in name} == table


def test_events_and_exceptions_of_both_tables_agree():
    def values(prefix: str) -> set[int]:
        return {value for name, (value, _) in facts.CONSTANTS.items() if name.startswith(prefix)}

    assert values("KFD_IOC_EVENT_") == set(amd_kfd.EVENT_TYPES.values())
    assert values("KFD_SMI_EVENT_") - {96} == set(amd_kfd.SMI_EVENTS.values())
    assert values("KFD_IOCTL_SVM_FLAG_") == set(amd_kfd.SVM_FLAGS.values())
    assert values("KFD_MEM_ERR_") == set(amd_kfd.MEMORY_ERROR_TYPES)
    assert values("EC_") == set(amd_faults.QUEUE_EXCEPTIONS)
