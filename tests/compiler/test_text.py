"""The canonical text of kernels: the same in every process, and readable back."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from compiler.ir.serialize import kernel_key, parse_kernel
from compiler.schedule.scheduler import schedule
from hcq.errors import UsageError
from tests.children import python
from tests.compiler.graphs import Program

ROOT = Path(__file__).parents[2]
PROGRAM = """
import random, sys
sys.path.insert(0, "")
from compiler.schedule.scheduler import schedule
from compiler.ir.serialize import kernel_key
from tests.compiler.graphs import Program
noise = random.Random(int(sys.argv[1]))
for _ in range(int(sys.argv[1])):
    schedule(Program(noise, length=20).outputs())
choose = random.Random(11)
for _ in range(25):
    for item in schedule(Program(choose, length=20).outputs()):
        print(kernel_key(item.ast), item.bufs)
"""


def test_the_text_is_the_same_in_every_process_whatever_came_before() -> None:
    texts = set()
    for noise, seed in ((0, "1"), (20, "2")):
        texts.add(python("-c", PROGRAM, str(noise), PYTHONHASHSEED=seed).stdout)
    assert len(texts) == 1
    assert len(texts.pop()) > 1000


def test_a_text_reads_back_as_the_same_kernel() -> None:
    choose = random.Random(5)
    for _ in range(30):
        for item in schedule(Program(choose, length=15).outputs()):
            assert parse_kernel(kernel_key(item.ast)) is item.ast


def test_a_broken_text_is_refused_with_its_line() -> None:
    with pytest.raises(UsageError, match="line 0"):
        parse_kernel("nonsense")
