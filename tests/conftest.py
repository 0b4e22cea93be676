"""Fixtures that every test may use, under the settings of a test run: validation on, seeded orders.

Random examples are drawn without an eye on the clock: a loaded machine is no fact about the code. They are
the same in every run, so that a run which fails can be repeated; others are what `tools.fuzz` is for.

The quick run (`-m "not slow"`) draws a quarter of them, and of a test marked `sampled(n)` it takes every n-th
case; the whole run takes all.
"""

from __future__ import annotations

import gc
import os
import sys
from typing import TYPE_CHECKING

import pytest

from compiler import stats
from hcq.config import override

if TYPE_CHECKING:
    from collections.abc import Iterator

SEED = 1
EXAMPLES = {"quick": 25, "whole": 100}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Take the most kernels that a run may compile."""
    parser.addoption(
        "--most-kernels", type=int, help="fail when this process compiles none, or more kernels than that"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Draw as many examples as the run asks for, and compile modules once for all processes of the run."""
    if sys.dont_write_bytecode and hasattr(config, "cache"):
        # The source tree gets no bytecode; tests and the interpreters that they start share pytest's folder.
        sys.dont_write_bytecode = False
        sys.pycache_prefix = str(config.cache.mkdir("bytecode"))
        os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    # Here, where bytecode is kept: pytest rewrites the asserts of all packages that bring a plugin.
    import hypothesis

    quick = "not slow" in config.getoption("markexpr")
    hypothesis.settings.register_profile(
        "tests",
        deadline=None,
        derandomize=True,
        max_examples=EXAMPLES["quick" if quick else "whole"],
        suppress_health_check=[hypothesis.HealthCheck.too_slow],
    )
    hypothesis.settings.load_profile("tests")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all but every n-th case of a test that is `sampled(n)` as slow."""
    seen: dict[str, int] = {}
    for item in items:
        mark = item.get_closest_marker("sampled")
        if mark is not None:
            test = item.nodeid.partition("[")[0]
            number = seen[test] = seen.get(test, -1) + 1
            if number % mark.args[0]:
                item.add_marker("slow")


def pytest_collection_finish() -> None:
    """Keep modules and collected tests out of the garbage collector: they live as long as the session.

    Tests and out-of-memory recovery collect garbage hundreds of times, each time over all of them otherwise.
    """
    gc.collect()
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Keep what a folder's tests left in caches out of the collections of the next folder's."""
    if nextitem is not None and nextitem.path.parent != item.path.parent:
        gc.collect()
        gc.freeze()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hold a run to the number of kernels that it may compile."""
    most = session.config.getoption("--most-kernels")
    if most is not None and not 0 < stats.lowered <= most:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Tell the number of kernels where it is limited."""
    most = terminalreporter.config.getoption("--most-kernels")
    if most is not None:
        terminalreporter.write_line(f"kernels compiled: {stats.lowered} of at most {most}")


@pytest.fixture(autouse=True)
def settings(request: pytest.FixtureRequest) -> Iterator[None]:
    """Turn validation on with a fixed seed; `@pytest.mark.usefixtures("fast")` asks for neither."""
    wanted = "fast" not in request.fixturenames
    with override(validate=wanted, seed=SEED if wanted else 0):
        yield


@pytest.fixture
def fast() -> None:
    """Mark a test that measures: no validation, no reordering."""
