"""Training and collectives of several processes equal one process, and a fault of one rank ends all."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import frontend.distributed as dist
from frontend import Tensor
from frontend.distributed import DistributedSampler
from frontend.distributed.ranks import collectives
from hcq.errors import UnsupportedError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

HERE = Path(__file__).resolve().parent
MPIRUN = shutil.which("mpirun", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
needs_mpi = pytest.mark.skipif(
    MPIRUN is None or find_spec("mpi4py") is None, reason="no mpirun or no mpi4py: pip install 'hcq[mpi]'"
)


def run(
    ranks: int, *arguments: str, program: str = "ranks.py", around: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    assert MPIRUN is not None
    command = [MPIRUN, "-n", str(ranks), *around, sys.executable, str(HERE / program), *arguments]
    path = f"{HERE.parents[1]}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    return subprocess.run(
        command, capture_output=True, text=True, timeout=600, check=False,
        env={**os.environ, "PYTHONPATH": path, "HCQ_WORKERS": "0"},
    )  # fmt: skip


@needs_mpi
@pytest.mark.landing
@pytest.mark.parametrize("ranks", [2, 4])
def test_several_ranks_equal_one_process(ranks: int) -> None:
    done = run(ranks, "")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split("\n")[:-1]) == [f"rank {r} of {ranks} is done" for r in range(ranks)]


@needs_mpi
@pytest.mark.landing
def test_programs_of_pytorch_have_the_answers_of_gloo() -> None:
    """Every collective, groups, messages, objects, models with unused parameters and buffers, samplers."""
    done = run(3, program="ranks_of_pytorch.py")
    assert done.returncode == 0, done.stderr
    got = json.loads(done.stdout)
    want = json.loads((HERE / "data" / "ranks_of_pytorch.json").read_text(encoding="utf-8"))
    assert list(got) == list(want)
    for name, answers in want.items():
        agrees(got[name], answers, name)


def agrees(got: Any, want: Any, where: str) -> None:
    """Compare nested lists, floats within 1e-10 of their size."""
    if isinstance(want, list):
        assert len(got) == len(want), where
        for i, (a, b) in enumerate(zip(got, want, strict=True)):
            agrees(a, b, f"{where}, {i}")
    else:
        assert got == (pytest.approx(want, 1e-10, 1e-12) if isinstance(want, float) else want), where


@needs_mpi
@pytest.mark.landing
@pytest.mark.parametrize(
    ("fault", "text"),
    [
        ("raise", "ValueError: the last rank's own error"),
        ("raise", "of rank 0 of 2: rank 1 ended without calling it"),
        ("kill", "Killed (signal 9)"),
        ("hang", "rank 1 did not call it"),
    ],
)
def test_a_fault_of_one_rank_ends_all_and_is_named(fault: str, text: str) -> None:
    done = run(2, fault)
    assert done.returncode != 0
    assert "is done" not in done.stdout
    assert text in done.stdout + done.stderr


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The last checkpoint of three ranks, none of which is killed."""
    folder = tmp_path_factory.mktemp("uninterrupted")
    done = run(3, str(folder), "0", "0", program="ranks_killed.py")
    assert done.returncode == 0, done.stderr
    assert (folder / "rank 1").read_text() == "done after 37 moments\n"
    return (folder / "checkpoint").read_bytes()


@needs_mpi
@pytest.mark.landing
@pytest.mark.parametrize("moment", [1, 2, 7, *range(9, 26)])
def test_a_rank_that_is_killed_at_any_moment_is_named_by_all_others(
    moment: int, tmp_path: Path, uninterrupted: bytes
) -> None:
    """They restart from the last checkpoint, and end as an uninterrupted run, to the bit.

    A shell stands between mpirun, which ends all ranks once a process of its own is killed, and each rank.
    """
    victim = moment % 3
    around = ("sh", "-c", '"$@" || sleep 600', "-")
    done = run(3, str(tmp_path), str(moment), str(victim), program="ranks_killed.py", around=around)
    assert done.returncode != 0
    errors = [(tmp_path / f"rank {rank}").read_text() for rank in range(3)]
    assert errors.pop(victim) == ""
    for text in errors:
        assert "ProcessGroupError: " in text
        assert f"of 3: rank {victim} ended" in text
    assert run(3, str(tmp_path), "0", "0", program="ranks_killed.py").returncode == 0
    assert (tmp_path / "checkpoint").read_bytes() == uninterrupted


def test_mpi_is_given_the_memory_of_a_tensor_of_the_host() -> None:
    """Nothing is copied before an all-reduce, unless it goes on while the program may write."""
    x = Tensor([1.0, 2.0, 3.0]).realize()
    for copy in (True, False):
        memory = collectives._in_place(x, copy=copy)
        assert memory is not None
        given, received, value = memory
        given[0], received[:] = 5, 7
        assert x.tolist() == [1.0 if copy else 5.0, 2.0, 3.0]
        assert value.tolist() == [7.0, 7.0, 7.0]
    others = [Tensor([True]), Tensor([1.0]).half(), Tensor([1.0]).bfloat16(), Tensor.zeros(0)]
    assert [collectives._in_place(t, copy=False) for t in others] == [None] * 4


def test_without_a_group_the_cure_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not dist.is_initialized()
    assert dist.get_rank() == dist.get_world_size() == -1
    with pytest.raises(UsageError, match=r"init_process_group\(\) first"):
        dist.barrier()
    with pytest.raises(UsageError, match="wanted 'mpi', saw 'smoke'"):
        dist.init_process_group("smoke")
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    with pytest.raises(UnsupportedError, match=r"pip install 'hcq\[mpi\]'"):
        dist.init_process_group()


@pytest.mark.parametrize(
    ("total", "options", "epoch", "first"),
    [
        (7, {}, 0, [[4, 3, 1], [0, 2, 4], [5, 6, 0]]),
        (7, {}, 3, [[5, 6, 1], [3, 0, 5], [4, 2, 3]]),
        (7, {"drop_last": True, "seed": 5}, 0, [[1, 2], [0, 6], [4, 5]]),
        (2, {"shuffle": False}, 0, [[0], [1], [0]]),
    ],
)
def test_a_sampler_has_the_order_of_pytorch(
    total: int, options: dict[str, Any], epoch: int, first: list[list[int]]
) -> None:
    """Each of three ranks gets as many, also where ranks are more than samples."""
    ranks = [DistributedSampler(range(total), 3, r, **options) for r in range(3)]
    for one in ranks:
        one.set_epoch(epoch)
    assert [list(one) for one in ranks] == first
    assert {len(one) for one in ranks} == {len(first[0])}
