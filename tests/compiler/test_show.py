"""What DEBUG prints: at each level one form of a kernel more, and colours only where they are wanted."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from compiler import show
from compiler.compile import compile_kernel, forget
from compiler.dtype import dtypes
from compiler.ir import graph
from compiler.ir.ops import Ops
from compiler.schedule.scheduler import schedule
from hcq.config import override

if TYPE_CHECKING:
    from pathlib import Path

    from compiler.ir.uop import UOp

ARCH = "x86_64-v3"


def sums_of_squares(columns: int) -> UOp:
    x = graph.param(0, (8, columns), dtypes.float32)
    return graph.reduce(graph.binary(Ops.MUL, x, x), Ops.ADD, (1,))


def printed(level: int, capsys: pytest.CaptureFixture[str], **more: object) -> str:
    output = sums_of_squares(48)
    forget()
    with override(debug=level, **more):
        (item,) = schedule([output])
        compile_kernel(item.ast, ARCH)
    return capsys.readouterr().err


FORMS = {
    1: "compiled for", 2: "1 kernels, 1,568 bytes moved", 3: "nest: ", 4: " = loop ", 5: "define ",
    6: ".text",
}  # fmt: skip


@pytest.mark.parametrize("level", FORMS)
def test_each_level_prints_one_form_more(
    level: int, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    text = printed(level, capsys, cache=tmp_path)
    assert {n for n, form in FORMS.items() if form in text} == set(range(1, level + 1))
    assert "\x1b" not in text


def test_a_kernel_of_the_disk_cache_is_printed_from_level_3_on(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    printed(0, capsys, cache=tmp_path)
    assert "dot_8" not in printed(1, capsys, cache=tmp_path)
    text = printed(3, capsys, cache=tmp_path)
    assert "from the cache" in text
    assert "nest: " in text


def test_a_label_has_a_colour_for_each_type_of_axis() -> None:
    (item,) = schedule([sums_of_squares(48)])
    forms = show.forms(item.ast, ARCH, level=3)
    plain = show.label_text(forms.name, forms.plan, colour=False)
    coloured = show.label_text(forms.name, forms.plan, colour=True)
    assert re.sub(r"\x1b\[\d+m", "", coloured) == plain
    words = {kind: word for word, kind in show.label_parts(forms.name, forms.plan)}
    assert words["sum"] == "r48"
    assert f"\x1b[{show.COLOURS['sum']}mr48\x1b[0m" in coloured


def test_a_graph_is_shown_with_each_node_once() -> None:
    lines = show.graph([sums_of_squares(48)]).splitlines()
    assert [line.split()[2] for line in lines] == ["PARAM", "MUL", "REDUCE"]
    assert lines[1].endswith("%0 %0")
    assert lines[2].endswith("<- output")


def test_buffers_that_are_updated_in_place_are_moved_twice() -> None:
    x = graph.param(0, (64,), dtypes.float32)
    (item,) = schedule([graph.assign(x, graph.binary(Ops.ADD, x, x))])
    assert show.moved(item) == 2 * 64 * 4
