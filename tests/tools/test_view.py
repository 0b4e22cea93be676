"""The viewer: its data are those of the run, its page is one safe file, and a browser shows each part."""

from __future__ import annotations

import base64
import copy
import hashlib
import json
import os
import shutil
import subprocess
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import hcq
from compiler import show
from compiler.dtype import dtypes
from compiler.ir import graph
from compiler.ir.ops import Ops
from compiler.schedule.scheduler import schedule
from hcq.capture import log
from hcq.config import override
from hcq.errors import UsageError
from tests.children import python
from tests.conformance.kernels import image
from tests.limits import HANG_S
from tools.trace.text import lines
from tools.view import files
from tools.view.__main__ import main, page
from tools.view.record import Planned, described

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
DEVICES = ["cpu", "nv-emu", "amd-emu"]
BIG = 8 << 20
EVIL = "</script><script>alert(1)</script><!-- \u2028 & \"'"
TABS = ("timeline", "steps", "memory", "counters", "findings", "reports")
CHROMIUM = next(
    filter(None, [os.environ.get("CHROMIUM"), *map(shutil.which, ("chromium", "google-chrome", "chrome"))]),
    "",
)
RACE = """
import hcq, interop, numpy as np
PTX = '''.version 8.5
.target sm_80
.address_size 64
.file 1 "total.cu"
.visible .entry total(.param .u64 .ptr .global out) {
  .reg .b64 %rd0; .reg .b32 %r0;
  ld.param.u64 %rd0, [out];
  .loc 1 2 0
  ld.global.u32 %r0, [%rd0];
  add.u32 %r0, %r0, 1;
  st.global.u32 [%rd0], %r0;
  ret;
}
'''
with hcq.open("nv-emu:sm_80") as device:
    out = interop.array(device, np.zeros(1, np.uint32))
    interop.load(device, PTX).launch(out, groups=4, threads=32).wait()  # the launch
"""


class Page(HTMLParser):
    """A page: its elements, its scripts by type, its data, and tags that do not match."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[str | None, str]] = []
        self.open: list[str] = []
        self.wrong: list[str] = []
        self.feed(text)
        self.close()
        self.data: dict[str, Any] = json.loads(dict(self.scripts)["application/json"])

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append((dict(attrs).get("type"), ""))
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts[-1] = self.scripts[-1][0], self.scripts[-1][1] + data


def recorded(name: str, folder: Path) -> tuple[files.Data, list[hcq.Span]]:
    """Record a fill, copies, a kernel and a closed buffer; return data of the files, and the spans."""
    paths = {kind: folder / f"{kind}.json" for kind in ("trace", "capture", "counters")}
    settings = {kind: str(path) for kind, path in paths.items() if name != "cpu" or kind != "counters"}
    with override(profile=True, **settings), hcq.open(name) as device:  # type: ignore[arg-type]  # texts
        a, b = device.alloc(4096, label="a"), device.alloc(4096, label=EVIL)
        device.alloc(BIG, label="big").close()
        todo = device.compute.record(label="fill and run").fill(a, 1).barrier().copy(b, a).barrier()
        program = device.load(image("affine", device.info))
        todo.exec(program, program.args(a, 3, 1), groups=(1, 1, 1), threads=(1, 1, 1))
        point = device.compute.submit(todo)
        device.copies[0].submit(device.copies[0].record(label="back").copy(a, b), after=[point]).wait(
            timeout_s=HANG_S
        )
        spans = device.spans()
    data = files.empty("run")
    for path in paths.values():
        if path.exists():
            files.add(data, path)
    return data, spans


@pytest.mark.parametrize("name", DEVICES)
def test_data_are_the_spans_packets_memory_and_counts_of_the_run(name: str, tmp_path: Path):
    data, spans = recorded(name, tmp_path)
    wanted = [[span.name, span.queue, span.start_ns, span.end_ns] for span in spans]
    assert sorted(data["spans"]) == sorted(wanted)
    assert [span[0] for span in wanted].count("affine") == 1
    told = [line.strip() for line in lines(log.read(tmp_path / "capture.json"), packets=True)]
    shown = [line.strip() for one in data["submissions"] for line in (*one["commands"], *one["packets"])]
    assert len(shown) > 5
    assert [line for line in told if line in shown] == shown
    assert [one["kernels"] for one in data["submissions"]] == [["affine"], []]
    assert all(one["state"].startswith("done when signal") for one in data["submissions"])
    (use,) = data["memory"]
    totals = [total for _, total in use["points"]]
    assert BIG in [after - before for before, after in pairwise(totals)]
    assert -BIG in [after - before for before, after in pairwise(totals)]
    assert use["largest"][0] == ("big", BIG)
    assert use["peak"] == max(totals)
    assert [time for time, _ in use["points"]] == sorted(time for time, _ in use["points"])
    counted = json.loads((tmp_path / "counters.json").read_text()) if name != "cpu" else []
    assert [{key: one[key] for key in counted[at]} for at, one in enumerate(data["counters"])] == counted
    for one in data["counters"]:
        assert one["nbytes"] == one["read"] + one["written"] > 0
        assert one["estimates"][0]["rates"]["memory"] > 1e11


@pytest.mark.parametrize("name", DEVICES)
def test_the_page_is_one_file_with_the_data_and_one_script(name: str, tmp_path: Path):
    data, _ = recorded(name, tmp_path)
    data["title"] = EVIL
    read = Page(page(data))
    assert (read.wrong, read.open) == ([], [])
    assert read.data == json.loads(json.dumps(data))
    assert EVIL in [label for label, _ in read.data["memory"][0]["largest"]]
    assert [kind for kind, _ in read.scripts] == ["application/json", None]
    digest = base64.b64encode(hashlib.sha256(read.scripts[1][1].encode()).digest()).decode()
    (policy,) = [one["content"] for tag, one in read.found if tag == "meta" and "http-equiv" in one]
    assert policy == (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; base-uri 'none'"
    )
    attributes = {key for _, attrs in read.found for key in attrs}
    assert not {key for key in attributes if key in {"src", "href"} or key.startswith("on")}
    script = read.scripts[1][1].replace("http://www.w3.org/2000/svg", "")
    assert not [word for word in ("innerHTML", "http://", "https://", "eval(") if word in script]


def test_graphs_lead_to_kernels_and_their_forms():
    x = graph.param(0, (8, 40), dtypes.float32)
    y = graph.reduce(graph.binary(Ops.MUL, x, x), Ops.ADD, (1,))
    items = tuple(schedule([y]))
    data = described([Planned((y,), items, "cpu:0", "x86_64-v3")] * 2)
    forms = show.forms(items[0].ast, "x86_64-v3")
    assert [one["text"] for one in data["graphs"]] == [show.graph((y,))] * 2
    assert data["graphs"][0]["kernels"] == [
        [forms.name, show.moved(items[0]), "out0 float32[8] ← in0 float32[8, 40]"]
    ]
    (kernel,) = data["kernels"]
    shown = [kernel[key] for key in ("name", "nest", "lines", "ir", "assembly")]
    assert shown == [forms.name, forms.nest, forms.lines, forms.ir, forms.assembly]


@pytest.mark.slow
@pytest.mark.parametrize("name", DEVICES)
def test_the_command_runs_a_program_and_returns_its_status(name: str, tmp_path: Path):
    program = tmp_path / "program.py"
    program.write_text(
        "import sys\nfrom frontend import Tensor\nfor i in range(2):\n    x = Tensor.ones(8, 8).contiguous()"
        "\n    (x @ x).sum().item()\nsys.exit(int(sys.argv[1]))\n"
    )
    words = ("-W", "error", "-m", "tools.view", "--output", tmp_path / "run.html")
    words += ("--counters",) * (name != "cpu") + (program, "3", "--json")
    done = python(*words, status=None, HCQ_DEVICE=name, HCQ_CACHE=str(tmp_path / "cache"))
    assert done.returncode == 3, done.stderr
    assert "note: --json after the program is its own" in done.stderr
    data = Page((tmp_path / "run.html").read_text()).data
    kernels = {(one["device"], one["name"]) for one in data["kernels"]}
    assert kernels == {(plan["device"], row[0]) for plan in data["graphs"] for row in plan["kernels"]}
    ran = {
        (one["queue"].rpartition(" of ")[2], kernel)
        for one in data["submissions"]
        for kernel in one["kernels"]
    }
    assert ran == kernels
    assert {(queue.rpartition(" of ")[2], span) for span, queue, *_ in data["spans"]} > kernels
    assert {one["kernel"] for one in data["counters"]} == (
        {one for _, one in kernels} if name != "cpu" else set()
    )


def test_findings_have_the_launch_and_the_text_of_the_line(tmp_path: Path):
    program, out = tmp_path / "race.py", tmp_path / "run.json"
    program.write_text(RACE)
    (tmp_path / "total.cu").write_text("__global__ void total(unsigned *out)\n{ *out += 1; }\n")
    python("-m", "tools.view", "--json", "--checked", "--output", out, program, cwd=tmp_path, status=1,
           HCQ_CACHE=str(tmp_path / "cache"))  # fmt: skip
    found = json.loads(out.read_text())["findings"]
    assert [one["kind"] for one in found] == ["global_race", "global_race"]
    launch = 1 + next(at for at, line in enumerate(RACE.splitlines()) if "# the launch" in line)
    assert [one["launched"] for one in found] == [f"{program}:{launch}"] * 2
    assert [one["source_text"] for one in found] == ["{ *out += 1; }"] * 2


def test_races_come_before_their_consequences(tmp_path: Path):
    path = tmp_path / "findings.jsonl"
    kinds = ["uninitialised", "shared_race", "fault", "global_race"]
    path.write_text("".join(json.dumps({"kind": kind, "message": EVIL}) + "\n" for kind in kinds))
    data = files.empty("")
    files.add(data, path)
    assert [one["kind"] for one in data["findings"]] == [kinds[at] for at in (1, 3, 0, 2)]


def test_reports_stand_side_by_side_and_data_can_be_read_again(tmp_path: Path):
    paths = sorted((ROOT / "docs/hardware").glob("2*.json"))
    out, again = tmp_path / "a.json", tmp_path / "b.json"
    assert main(["--json", "--output", str(out), *map(str, paths)]) == 0
    data = json.loads(out.read_text())
    assert [one["file"] for one in data["reports"]] == [path.stem for path in paths]
    for path, one in zip(paths, data["reports"], strict=True):
        stages = json.loads(path.read_text())["stages"]
        assert [(stage["name"], stage["status"]) for stage in one["stages"]] == [
            (stage["name"], stage["status"]) for stage in stages
        ]
        assert len(one["rows"]) == sum(len(stage["facts"].get("rows", ())) for stage in stages)
    assert main(["--json", "--output", str(again), str(out)]) == 0
    assert {part: json.loads(again.read_text())[part] for part in files.PARTS} == {
        part: data[part] for part in files.PARTS
    }


CRASH = '{"crash": 99, "text": ""}'
REFUSED = [
    ("", "saw JSONDecodeError"),
    ("\x7fELF", "saw"),
    ('{"a": 1}', "wanted a trace (HCQ_TRACE), capture (HCQ_CAPTURE)"),
    ("[]", "wanted a trace"),
    ("[" * 100_000, "wanted a trace"),
    ('{"traceEvents": 5}', "wanted a whole trace; saw TypeError"),
    ('{"traceEvents": [{"ph": "X", "name": "a"}]}', "wanted a whole trace; saw KeyError: 'pid'"),
    ('{"traceEvents": [{"ph": "X", "pid": 0, "tid": 0, "ts": NaN}]}', "wanted a finite number, saw NaN"),
    ('{"traceEvents": [{"ph": "X", "name": "a", "pid": 0, "tid": 0, "ts": 1e999}]}', "OverflowError"),
    ('{"t":"hcq-capture","version":99}\n', "no capture of version 1"),
    ('{"t":"hcq-capture","version":1}\nnonsense\n', "line 2: wanted an object"),
    ('{"t":"hcq-capture","version":1}\n{"t":"closed","buffer":1}\n', "a whole capture; saw KeyError: 1"),
    ('{"hcq-view": 2}', "wanted data of hcq view of version 1, saw version 2"),
    (CRASH, "wanted a crash report of version"),
    ('[{"kernel": "a", "launches": 1}]', "wanted a whole counters; saw KeyError: 'flops'"),
    ('{"stages": 1}', "wanted a whole report; saw TypeError"),
    ('{"kind": "a", "message": "b"}\n{"kind"', "wanted"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "words"), REFUSED)
def test_a_wrong_file_is_refused_with_what_to_try(text: str, words: str, tmp_path: Path):
    path = tmp_path / "file"
    path.write_text(text)
    data = files.empty("")
    before = copy.deepcopy(data)
    with pytest.raises(UsageError) as caught:
        files.add(data, path)
    assert words in str(caught.value)
    assert "hint: record it again" in str(caught.value)
    assert data == before


def test_what_a_page_does_not_show_is_said(tmp_path: Path):
    trace, capture = tmp_path / "trace", tmp_path / "capture"
    event = {"ph": "X", "name": "a", "pid": 0, "tid": 0, "ts": 1, "dur": 1}
    trace.write_text(json.dumps({"traceEvents": [event] * (files.MOST["spans"] + 5)}))
    records = [{"t": "hcq-capture", "version": 1}, {"t": "device", "id": 1, "name": "cpu", "arch": "x"}]
    submit = {"t": "submit", "device": 1, "queue": "compute 0 of cpu:0", "label": "", "commands": []}
    records += [submit | {"n": n} for n in range(files.MOST["submissions"] + 1)]
    capture.write_text("".join(json.dumps(record) + "\n" for record in records))
    data = files.empty("")
    files.add(data, trace)
    files.add(data, capture)
    assert data["notes"] == [
        "only the first 20,000 of 20,005 spans are shown",
        "only the first 1,000 of 1,001 submissions are shown",
    ]  # fmt: skip
    assert len(data["spans"]) == files.MOST["spans"]
    trace.write_bytes(b" ")
    os.truncate(trace, files.MOST_BYTES + 1)
    with pytest.raises(
        UsageError, match=r"wanted at most 256 MiB, saw 256 MiB(?s:.*)hint: record a shorter run"
    ):
        files.add(data, trace)


class Browser:
    """A headless Chromium with one page, by the DevTools protocol over two pipes."""

    def __init__(self, url: str, profile: Path) -> None:
        here, its_out = os.pipe()
        its_in, there = os.pipe()
        words = [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe",
                 "--disable-dev-shm-usage", f"--user-data-dir={profile}", "about:blank"]  # fmt: skip
        script = f'exec 3<&{its_in} 4>&{its_out} "$@"'
        self.process = subprocess.Popen(
            ["/bin/bash", "-c", f"{script}", "bash", *words],
            pass_fds=(its_in, its_out),
            stderr=subprocess.DEVNULL,
        )
        os.close(its_in)
        os.close(its_out)
        self.read, self.write, self.number = os.fdopen(here, "rb"), os.fdopen(there, "wb"), 0
        self.events: list[dict[str, Any]] = []
        targets = self.call("Target.getTargets")["targetInfos"]
        target = next(one["targetId"] for one in targets if one["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Runtime", "Network", "Page"):
            self.call(f"{domain}.enable", session=True)
        self.call("Page.navigate", session=True, url=url)
        while self.value("document.body && document.body.dataset.ready") != "yes":
            pass

    def call(self, method: str, *, session: bool = False, **params: object) -> dict[str, Any]:
        """Return the result of a command; events that come before it are kept."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        message |= {"sessionId": self.session} if session else {}
        self.write.write(json.dumps(message).encode() + b"\0")
        self.write.flush()
        while True:
            answer = json.loads(self._message())
            if answer.get("id") == self.number:
                return answer["result"]
            self.events.append(answer)

    def _message(self) -> bytes:
        text = bytearray()
        while (byte := self.read.read(1)) != b"\0":
            assert byte, "the browser ended"
            text += byte
        return bytes(text)

    def value(self, script: str) -> Any:
        """Return what an expression gives in the page."""
        found = self.call("Runtime.evaluate", session=True, expression=script, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def close(self) -> None:
        """End the browser."""
        self.process.kill()
        self.process.wait()
        self.read.close()
        self.write.close()


@pytest.fixture
def browsers(tmp_path: Path) -> Iterator[Any]:
    """Give a function that opens a page."""
    opened: list[Browser] = []

    def browse(text: str) -> Browser:
        (tmp_path / "page.html").write_text(text, encoding="utf-8")
        opened.append(Browser((tmp_path / "page.html").as_uri(), tmp_path / f"profile{len(opened)}"))
        return opened[-1]

    yield browse
    for one in opened:
        one.close()


@pytest.mark.skipif(
    not CHROMIUM, reason="no browser: wanted chromium or google-chrome in PATH, or CHROMIUM=FILE"
)
@pytest.mark.parametrize("name", DEVICES)
def test_a_browser_shows_each_part_that_is_clicked(name: str, tmp_path: Path, browsers: Any):
    data, spans = recorded(name, tmp_path)
    files.add(data, min((ROOT / "docs/hardware").glob("2*.json")))
    data["findings"].append({"kind": "shared_race", "message": EVIL, "kernel": "affine"})
    data["title"] = EVIL
    view = browsers(page(data))
    assert view.value("document.title") == EVIL
    words = {
        "timeline": "fill and run", "steps": "exec affine(", "memory": "big", "findings": EVIL,
        "counters": "affine" if name != "cpu" else "nothing for this part", "reports": "conformance",
    }  # fmt: skip
    for tab in TABS:
        view.value(f"document.getElementById('tab-{tab}').click()")
        shown = view.value(
            "[...document.querySelectorAll('section')].filter((one) => !one.hidden).map((one) => one.id)"
        )
        assert shown == [tab]
        assert words[tab] in view.value(f"document.getElementById('{tab}').textContent")
    press = "document.querySelector('#timeline svg').dispatchEvent(new KeyboardEvent('keydown', {key: 'n'}))"
    told = [view.value(f"{press}; document.getElementById('span').textContent") for _ in spans]
    assert "starts at 0 ns" in told[0]
    assert sorted(text.partition(": starts at")[0] for text in told) == sorted(
        f"{span.name} on {span.queue}" for span in spans
    )
    assert view.value("document.getElementById('packets').textContent") == "\n".join(
        data["submissions"][0]["packets"]
    )
    assert view.value("document.querySelectorAll('script').length") == 2
    assert "damaged" not in view.value("document.body.innerText")
    urls = [
        one["params"]["request"]["url"] for one in view.events if one["method"] == "Network.requestWillBeSent"
    ]
    assert [url for url in urls if not url.startswith("file:")] == []
    assert not [one for one in view.events if one["method"] == "Runtime.exceptionThrown"]
