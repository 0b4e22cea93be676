"""Triton's kernels, compiled before (`tests.guests.build`), on the emulated GPUs, against NumPy.

The quick run takes a sample; the whole run takes every kernel on every target.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

import hcq
from tests.guests import build, corpus

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.sampled(61)
@pytest.mark.parametrize("target", corpus.TRITON)
@pytest.mark.parametrize("name", corpus.TRITON_CASES)
def test_kernels_of_triton_agree_with_numpy(name: str, target: str, devices: dict[str, hcq.Device]):
    if name not in corpus.archive(f"triton_{target}"):
        assert f"{name} {target}" in build.EXPECTED
        return
    if target not in devices:
        devices[target] = hcq.open(corpus.TRITON[target])
    assert not corpus.run_triton(devices[target], name, target)


@pytest.mark.parametrize("target", corpus.TRITON)
def test_every_case_was_compiled_for_every_target(target: str):
    kept = corpus.archive(f"triton_{target}")
    missing = {f"{name} {target}" for name in corpus.TRITON_CASES.keys() - kept.keys()}
    assert missing == {one for one in build.EXPECTED if one.endswith(f" {target}")}


@pytest.mark.parametrize("path", sorted(build.DATA.glob("*.tar.xz")), ids=lambda path: path.name)
def test_kept_kernels_name_no_folder_of_the_machine_that_compiled_them(path: Path):
    for name, (_, code) in build.read(path).items():
        if code.startswith(b"\x7fELF"):
            assert not re.search(rb"/((tools|tests)/guests|triton)\b", code), name
        else:
            assert not re.search(rb'\.file\s+\d+\s+"[^"]*/', code), name


def test_names_of_files_that_assertions_print_lose_their_folder():
    text = ".b8 assertFile_0[%d] = {%s};"
    whole, name = (", ".join(map(str, one)) for one in (b"/home/x/a.py", b"a.py"))
    assert build.tidy(text % (13, whole)) == text % (5, name)


def test_the_corpus_runs_with_checks_by_one_command(capsys: pytest.CaptureFixture[str]):
    assert corpus.main(["--target", "sm_86", "--target", "sm_89", "--only", "printf_rows"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(",")[0] for line in lines if " 1 of 1 right, " in line] == [
        f"cuda {one} on nv-emu:{one} with all checks: 1 of 1 right" for one in ("sm_86", "sm_89")
    ]
    with pytest.raises(SystemExit):
        corpus.main(["--target", "sm_75"])
