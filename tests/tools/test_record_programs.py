"""The recorder's whole kernels: random ones give what the host gives, operations what NumPy gives."""

# ruff: noqa: E501 - texts read best on one line

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from hcq.errors import UsageError
from tests.fuzz.kernels import Case
from tools.record.nv import vendor
from tools.record.nv.programs import kept, rewritten
from tools.record.recording import Journal
from tools.record.runner import Opened, Recorder

if TYPE_CHECKING:
    from pathlib import Path

    from tools.record.forms import Form

NAMES = (
    "random 3",
    "operation add of float16",
    "operation cast of float32 to float16",
    "operation product of float16",
)
HEAD = {"device": "", "arch": "sm_80", "driver": "", "commit": "", "date": "", "tool": ""}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Form, bytes]]:
    """Each form and what the emulated GPU computes."""
    forms = [one for one in vendor.forms("sm_80") if one.name in NAMES]
    assert len(forms) == len(NAMES)
    path: Path = tmp_path_factory.mktemp("programs") / "a.jsonl"
    with Opened("nv-emu:sm_80") as opened, Journal(path, HEAD) as journal:
        assert Recorder(vendor.VENDOR, opened, journal, None, 600.0, lambda _: None).record([forms])
        assert not journal.recording.errors
        return {one.name: (one, journal.recording.results[one.name][1]) for one in forms}


def test_a_random_kernel_gives_what_the_host_gives(results: dict[str, tuple[Form, bytes]]) -> None:
    form, found = results["random 3"]
    assert found == Case.whole(3).wanted(form.inputs[:, 0])


def test_operations_of_halves_are_those_of_numpy(results: dict[str, tuple[Form, bytes]]) -> None:
    form, found = results["operation add of float16"]
    x, y = np.ascontiguousarray(form.inputs).view("f2").reshape(2, -1)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(np.frombuffer(found, "f2"), x + y)
        form, found = results["operation cast of float32 to float16"]
        wide = np.ascontiguousarray(form.inputs).view("f4").reshape(-1)
        np.testing.assert_array_equal(np.frombuffer(found, "f2"), wide.astype("f2"))
    form, found = results["operation product of float16"]
    a, b = np.ascontiguousarray(form.inputs).view("f2").astype("f4").reshape(2, 32, 32)
    np.testing.assert_array_equal(np.frombuffer(found, "f2").reshape(32, 32), a @ b)


def test_both_kinds_are_kept_and_names_are_unique() -> None:
    names = [one.name for one in kept()]
    assert len(set(names)) == len(names)
    assert sum(name.startswith("random ") for name in names) >= 24
    assert sum(name.startswith("operation ") for name in names) >= 90


def test_a_kernel_with_another_parameter_than_pointers_is_refused() -> None:
    text = ".visible .entry f(.param .u64 f_param_0, .param .u32 f_param_1) {{ ld.param.u64 %a, [f_param_0]; {} }}"
    assert "[in];\n\tadd.s64 %a, %a, 64;" in rewritten(text.format(""), [("in", 64)])
    with pytest.raises(UsageError, match="parameters that are pointers"):
        rewritten(text.format("ld.param.u32 %b, [f_param_1];"), [("in", 0), ("out", 0)])
