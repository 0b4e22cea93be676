"""Write the HTML page of a recorded run: one file without scripts and without references to other files.

The anchor of a kernel is inside its `<details>`, so that browsers open the section when a link leads to it.

Not here: the recording (`tools.page.record`). Next: `compiler.show`, the text of graphs and kernels.
"""

from __future__ import annotations

from html import escape
from statistics import median
from typing import TYPE_CHECKING, Final

from compiler import show
from compiler.ir.naming import kernel_name
from hcq.registry import parse

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tools.page.record import KernelPage, Planned, Run

    Kernels = Mapping[tuple[str, str], KernelPage]

STYLE: Final = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 72em; padding: 0 1em; color: #222 }
table { border-collapse: collapse; width: 100% } td, th { padding: .15em .6em; text-align: left }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums }
tr:nth-child(even) { background: #f5f6f8 }
pre { background: #f5f6f8; padding: .7em; overflow-x: auto; font-size: 12.5px; line-height: 1.35 }
summary { cursor: pointer } details { margin: .3em 0 } details details { margin-left: 1.2em }
code b { font-weight: 600 } .bar { background: #5b8db8; height: .7em; display: inline-block; min-width: 1px }
.grid { color: #1f5fbf } .loop { color: #666 } .thread { color: #087f8c } .unrolled { color: #9a6700 }
.vector { color: #1a7f37 } .sum { color: #c0392b }
"""
LEGEND: Final = (
    ("grid", "g: workgroups"), ("loop", "l: loop"), ("thread", "t: threads"), ("unrolled", "u: unrolled"),
    ("vector", "v: lanes of a vector"), ("sum", "r: reduction"),
)  # fmt: skip
_FORMS: Final = (("nest", "Loop nest"), ("lines", "Lines"), ("ir", "LLVM IR"), ("assembly", "Assembly"))


def page(run: Run, kernels: Kernels) -> str:
    """Return the page: a summary, each scheduled graph with its kernels, and each kernel with its code.

    `kernels` are the kernels of `run` by (device, kernel name).
    """
    others = [times for key, times in run.times.items() if key not in kernels]
    total = sum(k.total_ns for k in kernels.values()) + sum(map(sum, others))
    head = (
        f"{len(run.plans)} graphs, {len(kernels)} different kernels, "
        f"{sum(len(k.nanoseconds) for k in kernels.values())} executions, {_time(total)}"
    )
    legend = " ".join(f'<span class="{kind}">{escape(text)}</span>' for kind, text in LEGEND)
    anchors = {key: f"k{number}" for number, key in enumerate(kernels)}
    body = [
        f"<h1>{escape(run.program)}</h1><p>{escape(head)}</p>{_emulated(run)}<p>{legend}</p>",
        "<h2>Kernels by time</h2>",
        _by_time(kernels, anchors, total, others),
        "<h2>Graphs and schedules</h2>",
        *[_graph(number, plan, kernels, anchors) for number, plan in enumerate(run.plans)],
        "<h2>Code</h2>",
        *[_code(anchors[key], key[0], kernel) for key, kernel in kernels.items()],
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{escape(run.program)}</title><style>{STYLE}</style></head>\n<body>\n"
        + "\n".join(body)
        + "\n</body></html>\n"
    )


def _emulated(run: Run) -> str:
    """Return the note about the times of emulated GPUs; "" if none was used."""
    devices = dict.fromkeys(plan.device for plan in run.plans)
    names = [name for name in devices if parse(name)[0].driver().emulated]
    if not names:
        return ""
    return f"<p>{escape(', '.join(names))}: emulated; times are those of the emulation, not of a GPU.</p>"


def _time(nanoseconds: float) -> str:
    """Return a time in the unit that gives one to three digits before the point."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if nanoseconds >= size:
            return f"{nanoseconds / size:.2f} {unit}"
    return f"{nanoseconds:.0f} ns"


def _label(kernel: KernelPage) -> str:
    """Return the coloured label of a kernel."""
    words = [f'<span class="{kind}">{escape(word)}</span>' for word, kind in kernel.parts]
    return f"<code><b>{words[0]}</b> {' '.join(words[1:])}</code>"


def _by_time(
    kernels: Kernels, anchors: Mapping[tuple[str, str], str], total: int, others: Sequence[list[int]]
) -> str:
    """Return the table of kernels, the longest total time first, then copies and fills in one row."""
    rows = []
    for key, kernel in sorted(kernels.items(), key=lambda pair: -pair[1].total_ns):
        share = 100 * kernel.total_ns / total if total else 0.0
        times = kernel.nanoseconds
        rows.append(
            f'<tr><td><a href="#{anchors[key]}">{escape(key[1])}</a></td><td class="n">{len(times)}</td>'
            f'<td class="n">{_time(median(times)) if times else ""}</td>'
            f'<td class="n">{_time(kernel.total_ns) if times else ""}</td>'
            f'<td><span class="bar" style="width:{share:.1f}px"></span> {share:.1f} %</td></tr>'
        )
    if others:
        every = [time for times in others for time in times]
        share = 100 * sum(every) / total if total else 0.0
        rows.append(
            f'<tr><td>copies and fills</td><td class="n">{len(every)}</td>'
            f'<td class="n">{_time(median(every))}</td><td class="n">{_time(sum(every))}</td>'
            f'<td><span class="bar" style="width:{share:.1f}px"></span> {share:.1f} %</td></tr>'
        )
    head = '<tr><th>kernel</th><th class="n">executions</th><th class="n">median</th>'
    return f'<table>{head}<th class="n">all</th><th>share</th></tr>{"".join(rows)}</table>'


def _graph(number: int, plan: Planned, kernels: Kernels, anchors: Mapping[tuple[str, str], str]) -> str:
    """Return a scheduled graph: its kernels in launch order, and the tensor graph as text."""
    rows = []
    for item in plan.items:
        key = plan.device, kernel_name(item.ast)
        stores = ", ".join([show.reference(ref) for ref in item.writes])
        loads = ", ".join([show.reference(b) for slot, b in enumerate(item.bufs) if slot not in item.stores])
        times = kernels[key].nanoseconds
        rows.append(
            f'<tr><td><a href="#{anchors[key]}">{escape(key[1])}</a></td>'
            f'<td class="n">{show.moved(item):,}</td>'
            f'<td class="n">{_time(median(times)) if times else ""}</td>'
            f"<td><code>{escape(stores)} ← {escape(loads)}</code></td></tr>"
        )
    moved = sum(show.moved(item) for item in plan.items)
    head = '<tr><th>kernel</th><th class="n">bytes moved</th><th class="n">median</th><th>buffers</th></tr>'
    return (
        f'<details class="plan"><summary>Graph {number} on {escape(plan.device)}: {len(plan.items)} kernels, '
        f"{moved:,} bytes moved</summary><table>{head}{''.join(rows)}</table>"
        f"<details><summary>Tensor graph</summary><pre>{escape(show.graph(plan.outputs))}</pre></details>"
        "</details>"
    )


def _code(anchor: str, device: str, kernel: KernelPage) -> str:
    """Return a kernel's section: its label, times and forms."""
    forms = "".join(
        f"<details><summary>{title}</summary><pre>{escape(getattr(kernel.forms, name))}</pre></details>"
        for name, title in _FORMS
    )
    times = f", {_time(median(kernel.nanoseconds))}" if kernel.nanoseconds else ""
    timed = kernel.nanoseconds and not parse(device)[0].driver().emulated
    rate = f", {kernel.nbytes / median(kernel.nanoseconds):.2f} GB/s" if timed else ""
    counts = f"<h4>Counters</h4><pre>{escape(kernel.counts)}</pre>" if kernel.counts else ""
    facts = f"{kernel.nbytes:,} bytes moved{times}{rate}, on {device}"
    return (
        f'<details class="kernel"><summary>{_label(kernel)}</summary>'
        f'<p id="{anchor}">{escape(facts)}</p>{counts}{forms}</details>'
    )
