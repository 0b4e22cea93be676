"""Fixtures that every test may use, under the settings of a test run: validation on, seeded orders.

Random examples are drawn without an eye on the clock: a loaded machine is no fact about the code. They are
the same in every run, so that a run which fails can be repeated; others are what `tests.fuzz` is for.

There are three runs. The landing run (`--landing`) has every case. README's test command leaves out cases of
tests marked `sampled(n)`, which have many cases alike: it takes every k-th, k being the square root of n. The
quick run (`-m "not slow"`) takes every n-th of them, and of any other test with many cases two of five; it
draws a quarter of the random examples, and looks for garbage less often. A case that is named on the command
line runs.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import hcq
from compiler import stats
from hcq.config import config, override

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

CHECKED = frozenset(("frontend", "house"))
"""Folders whose tests of the quick run are under `HCQ_CHECK=1`."""
SEED = 1
EXAMPLES = {"quick": 25, "whole": 100}
MANY = 4
"""Cases from which on the quick run takes only some, also of a test without the mark `sampled`."""
SHARE = 2**0.5 - 1
"""The part of them that it takes. It has no period, so that neither of two interleaved kinds is left out."""
QUICK_GARBAGE = 20_000
"""New objects after which the quick run looks for garbage among the youngest."""
LONG_S = 60.0
"""CPU seconds of tests from which on a run shows its heaviest files."""
_spent = pytest.StashKey[dict[str, float]]()
_before = pytest.StashKey[float]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Take the most kernels that a run may compile, and whether every case runs."""
    parser.addoption(
        "--most-kernels", type=int, help="fail when this process compiles none, or more kernels than that"
    )
    parser.addoption(
        "--landing",
        action="store_true",
        help="run also the cases that only the run before a change lands has; with -m landing these alone",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Draw as many examples as the run asks for, and compile modules once for all processes of the run."""
    config.pluginmanager.register(_Spent(config))
    if sys.dont_write_bytecode and hasattr(config, "cache"):
        # The source tree gets no bytecode; tests and the interpreters that they start share pytest's folder.
        sys.dont_write_bytecode = False
        sys.pycache_prefix = str(config.cache.mkdir("bytecode"))
        os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    # Here, where bytecode is kept: pytest rewrites the asserts of all packages that bring a plugin.
    import hypothesis

    quick = "not slow" in config.getoption("markexpr")
    if quick:
        gc.set_threshold(QUICK_GARBAGE)
    hypothesis.settings.register_profile(
        "tests",
        deadline=None,
        derandomize=True,
        max_examples=EXAMPLES["quick" if quick else "whole"],
        suppress_health_check=[hypothesis.HealthCheck.too_slow],
    )
    hypothesis.settings.load_profile("tests")


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Collect without looking for garbage: what is imported lives as long as the session.

    Files are collected also where the device of a run is not there, so none may open a device meanwhile.
    """
    gc.disable()
    opened = hcq.open
    hcq.open = _refuse_to_open
    try:
        _import_own_part(session.config)
        return (yield)
    finally:
        hcq.open = opened
        gc.enable()


def _refuse_to_open(name: object = "auto", **_: object) -> Any:
    raise RuntimeError(
        f"device {name!r} is opened while test files are collected: make tensors in tests and fixtures, "
        "not in a module or in the arguments of parametrize"
    )


def _import_own_part(config: pytest.Config) -> None:
    """Import test files, in a process of several (xdist), from another place on in each.

    All processes collect all files, and pytest compiles a file unless a process has done so before. Thus they
    do not all compile the same file at the same time: the k-th of n begins with the k-th part.
    """
    worker: dict[str, Any] = getattr(config, "workerinput", {})
    if not worker:
        return
    paths = [Path(argument.partition("::")[0]) for argument in config.args]
    found = sorted(file for path in paths for file in path.rglob("test_*.py"))
    begin = int(worker["workerid"].removeprefix("gw")) * len(found) // worker["workercount"]
    for file in found[begin:] if begin else ():
        name = ".".join(file.resolve().relative_to(config.rootpath).with_suffix("").parts)
        with contextlib.suppress(Exception, pytest.skip.Exception):  # collecting the file raises it again
            importlib.import_module(name)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark as slow the cases that the quick run leaves out, and leave out those of the landing run alone."""
    many = Counter(item.nodeid.partition("[")[0] for item in items if not item.get_closest_marker("slow"))
    seen: Counter[str] = Counter()
    for item in items:
        mark, test = item.get_closest_marker("sampled"), item.nodeid.partition("[")[0]
        number = seen[test]
        seen[test] += 1
        if mark is not None:
            left_out = number % mark.args[0] > 0
            if number % round(mark.args[0] ** 0.5) > 0:
                item.add_marker("landing")
        else:
            left_out = many[test] >= MANY and number * SHARE % 1 >= SHARE
        if left_out and not item.get_closest_marker("slow"):
            item.add_marker("slow")
    if not config.getoption("landing"):
        named = {argument for argument in config.args if "::" in argument}
        left = [item for item in items if item.get_closest_marker("landing") and item.nodeid not in named]
        if left:
            config.hook.pytest_deselected(items=left)
            kept = set(items) - set(left)
            items[:] = [item for item in items if item in kept]


def pytest_collection_finish(session: pytest.Session) -> None:
    """Keep modules and collected tests out of the garbage collector: they live as long as the session.

    Tests and out-of-memory recovery collect garbage hundreds of times, each time over all of them otherwise.
    """
    gc.collect()
    gc.freeze()
    session.config.stash[_before] = _cpu_s()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Keep what a file's tests left in caches out of the collections of the next file's."""
    if nextitem is not None and nextitem.path != item.path:
        gc.collect()
        gc.freeze()


def _cpu_s() -> float:
    """Return the CPU seconds of this process, and of the children for whose end it has waited."""
    return sum(os.times()[:4])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Put the CPU seconds since the last report into this one, for the process that sums them up."""
    report, now = (yield), _cpu_s()
    report.user_properties.append(("cpu_s", now - item.config.stash[_before]))
    item.config.stash[_before] = now
    return report


class _Spent:
    """Sums up the CPU seconds of reports by file."""

    def __init__(self, config: pytest.Config) -> None:
        self.files = config.stash.setdefault(_spent, {})

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add a report, of this process or of another of the run."""
        name, seconds = report.nodeid.partition("::")[0], dict(report.user_properties).get("cpu_s", 0.0)
        self.files[name] = self.files.get(name, 0.0) + float(str(seconds))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hold a run to the number of kernels that it may compile."""
    most = session.config.getoption("--most-kernels")
    if most is not None and not 0 < stats.lowered <= most:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Tell the number of kernels where it is limited, and what was compared where `HCQ_CHECK` asks for it."""
    most = terminalreporter.config.getoption("--most-kernels")
    if most is not None:
        terminalreporter.write_line(f"kernels compiled: {stats.lowered} of at most {most}")
    files = terminalreporter.config.stash[_spent]
    if sum(files.values()) > LONG_S:
        heavy = sorted(files.items(), key=lambda one: -one[1])[:10]
        terminalreporter.write_line(
            f"CPU seconds of tests and their children: {sum(files.values()):.0f}, most of them in "
            + ", ".join(f"{name} {seconds:.0f}" for name, seconds in heavy)
        )
    if config().check and "frontend.check" in sys.modules:
        terminalreporter.write_line(sys.modules["frontend.check"].report())


@pytest.fixture(autouse=True)
def settings(request: pytest.FixtureRequest) -> Iterator[None]:
    """Turn validation on with a fixed seed; `@pytest.mark.usefixtures("fast")` asks for neither.

    Tests of tensors in the quick run also compare each kernel with its operations (`CHECKED`), and with
    `HCQ_CHECK=1` all tests do; those with `@pytest.mark.usefixtures("uncompared")` do not.
    """
    wanted = "fast" not in request.fixturenames
    quick = request.path.parent.name in CHECKED and not request.node.get_closest_marker("slow")
    checked = wanted and "uncompared" not in request.fixturenames and (quick or config().check)
    with override(validate=wanted, seed=SEED if wanted else 0, check=checked):
        yield


@pytest.fixture
def fast() -> None:
    """Mark a test that measures: no validation, no reordering."""


@pytest.fixture
def uncompared() -> None:
    """Mark a test whose launches must not wait, or be counted with others: kernels are not compared."""
