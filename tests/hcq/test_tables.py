"""Objects in notebooks: tables and texts of HTML, escaped."""

from __future__ import annotations

from html.parser import HTMLParser

from frontend import Tensor, nn
from frontend.stats import stats
from hcq.config import read
from hcq.counters import Counters
from hcq.doctor import Cache, Default, Finding, Report
from hcq.errors import FaultKind, FaultReport
from hcq.tables import html_table, html_text


class _Cells(HTMLParser):
    """The tags and the texts of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.texts: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        del attrs
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_cells_and_texts_are_escaped():
    cells = _Cells(html_table(["<b>"], [["a & b", 3]]) + html_text("<script>"))
    assert set(cells.tags) == {"table", "tr", "th", "td", "pre"}
    assert cells.texts == ["<b>", "a & b", "3", "<script>"]


def test_a_small_tensor_shows_its_values_and_a_large_one_is_not_computed():
    small, large = Tensor([[1.0, 2.0]]), Tensor.rand(11, 10) + 1
    assert _Cells(small._repr_html_()).texts == [
        "shape",
        "dtype",
        "device",
        "1x2",
        "float32",
        small.device,
        repr(small),
    ]
    before = stats.launches
    assert _Cells(large._repr_html_()).texts[3:] == ["11x10", "float32", large.device]
    assert stats.launches == before
    assert not large.is_realized


def test_a_module_shows_each_of_its_tensors_once():
    model = nn.Sequential(nn.Linear(3, 2), nn.ReLU())
    model.add_module("tied", model[0])
    texts = _Cells(model._repr_html_()).texts
    assert texts[0] == "Sequential: 8 elements in 2 tensors"
    assert [texts[5], texts[6], texts[9], texts[10]] == ["0.weight", "2x3", "0.bias", "2"]


def test_reports_show_what_their_text_says():
    fault = FaultReport(device="cpu:0", kind=FaultKind.RESET, message="a <b> & c")
    assert _Cells(fault._repr_html_()).texts == [str(fault)]
    assert _Cells(Counters()._repr_html_()).tags == ["pre"]
    report = Report(
        "1", "3", "Linux",
        (Finding(name="nv", present=False, missing="<none>", cure="buy"),), Default("", ""),
        Cache("", 0, 0, 0), (), "", (),
    )  # fmt: skip
    assert _Cells(report._repr_html_()).texts[4:] == ["nv", "no", "<none>", "buy"]


def test_colours_are_switched_off_by_any_text():
    assert [read({"NO_COLOR": text}).plain for text in ("", "0", "1")] == [False, True, True]
