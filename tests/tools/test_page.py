"""The HTML page of a run: complete, escaped, without scripts and without other files."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from compiler.dtype import dtypes
from compiler.ir import graph
from compiler.ir.ops import Ops
from compiler.schedule.scheduler import schedule
from tests.children import python
from tools.page.html import page
from tools.page.record import Planned, Run, kernels

ROOT = Path(__file__).resolve().parents[2]


class Read(HTMLParser):
    """The elements of a page: attributes by tag, the texts of <pre>, and tags that do not match."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.pre: list[str] = []
        self.open: list[str] = []
        self.wrong: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag == "pre":
            self.pre.append("")
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "pre":
            self.pre[-1] += data


def recorded(program: str = "a <program> & 'more'") -> Run:
    """Return the record of a small graph, as a run would have made it."""
    x = graph.param(0, (8, 40), dtypes.float32)
    y = graph.reduce(graph.binary(Ops.MUL, x, x), Ops.ADD, (1,))
    plan = Planned((y,), tuple(schedule([y])), "cpu", "x86_64-v3")
    run = Run(program, [plan, plan])
    for key in kernels(run):
        run.times[key] = [1500, 2500]
    return run


def test_the_page_is_well_formed_escaped_and_self_contained() -> None:
    run = recorded()
    ((key, one),) = kernels(run).items()
    forms = replace(one.forms, ir=f"{one.forms.ir}; <8 x float> & more")
    text = page(run, {key: replace(one, forms=forms)})
    read = Read(text)
    assert (read.wrong, read.open) == ([], [])
    tags = {tag for tag, _ in read.found}
    assert not tags & {"script", "link", "img", "iframe", "object"}
    links = [attrs["href"] for _, attrs in read.found if "href" in attrs]
    anchors = {f"#{attrs['id']}" for _, attrs in read.found if "id" in attrs}
    assert links
    assert set(links) == anchors
    assert not any({"src", "onclick", "onload"} & attrs.keys() for _, attrs in read.found)
    assert "a &lt;program&gt; &amp;" in text
    assert forms.ir in read.pre


def test_the_page_goes_from_graph_to_code_with_times() -> None:
    run = recorded()
    (one,) = kernels(run).values()
    text = page(run, kernels(run))
    read = Read(text)
    assert [one.forms.nest, one.forms.lines, one.forms.ir, one.forms.assembly] == read.pre[-4:]
    assert "REDUCE float32[8]" in read.pre[0]
    assert "2.00 µs" in text
    assert "4.00 µs" in text
    assert text.count('class="plan"') == 2
    assert text.count('class="kernel"') == 1


def test_a_name_leads_into_the_section_that_it_opens() -> None:
    run = recorded()
    text = page(run, kernels(run))
    assert re.search(r'<details class="kernel"><summary>.*?</summary><p id="k0">', text)
    assert 'href="#k0"' in text


def test_copies_and_fills_have_a_row() -> None:
    run = recorded()
    run.times["cpu", "copy 4096 bytes"] = [1000, 3000]
    text = page(run, kernels(run))
    assert (
        'copies and fills</td><td class="n">2</td><td class="n">2.00 µs</td><td class="n">4.00 µs</td>'
        in text
    )


def test_times_of_emulated_gpus_are_called_so_and_give_no_rate() -> None:
    run = recorded()
    assert "emulat" not in page(run, kernels(run))
    assert "GB/s" in page(run, kernels(run))
    (plan, _), (times,) = run.plans, run.times.values()
    emulated = Run("p", [replace(plan, device="nv-emu:sm_80", arch="sm_80")])
    for key in kernels(emulated):
        emulated.times[key] = times
        emulated.counts[key] = "bank conflicts  3 & more"
    text = page(emulated, kernels(emulated))
    assert "nv-emu:sm_80: emulated; times are those of the emulation, not of a GPU." in text
    assert "GB/s" not in text
    assert "<h4>Counters</h4><pre>bank conflicts  3 &amp; more</pre>" in text


@pytest.mark.slow
def test_counters_of_emulated_gpus_are_on_the_page(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("from frontend import Tensor\nTensor([1.0, 2.0]).exp().sum().realize()\n")
    settings = {"HCQ_DEVICE": "nv-emu:sm_80", "HCQ_CACHE": str(tmp_path / "cache")}
    python("-m", "tools.page", "--counters", "--output", tmp_path / "run.html", program, **settings)
    text = (tmp_path / "run.html").read_text()
    assert "<h4>Counters</h4>" in text
    assert "active lanes" in text


@pytest.mark.slow
def test_the_command_writes_the_page_of_a_program(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import sys\nfrom frontend import Tensor\nTensor([1.0, 2.0]).exp().sum().realize()\nsys.exit(3)\n"
    )
    words = ("-W", "error", "-m", "tools.page", "--output", tmp_path / "run.html", program)
    done = python(*words, status=None, HCQ_DEVICE="cpu", HCQ_CACHE=str(tmp_path / "cache"))
    assert done.returncode == 3, done.stderr
    text = (tmp_path / "run.html").read_text()
    assert "1 executions" in text
    assert Read(text).wrong == []
