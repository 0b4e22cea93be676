"""Differences of captures: those of `difflib` for short ones, and right for 10,000 submissions."""

from __future__ import annotations

import difflib
import json
import random
from typing import TYPE_CHECKING

import pytest

from tools.trace import difference
from tools.trace.__main__ import main

if TYPE_CHECKING:
    from pathlib import Path

NAMES = ("one", "other")
PERIOD = 30
"""Submissions after which a long trace repeats itself, as steps of a training do."""


def changed(lines: list[str], rng: random.Random) -> list[str]:
    """Return lines with some inserted, removed and replaced."""
    found = list(lines)
    for _ in range(rng.randrange(6)):
        at = rng.randrange(len(found) + 1)
        found[at : at + rng.choice([0, 1, rng.randrange(60)])] = rng.choices("abcdef", k=rng.randrange(40))
    return found


def patched(one: list[str], text: list[str]) -> list[str]:
    """Return the other list, from the first one and their difference."""
    found, at = list[str](), 0
    for line in text[2:]:
        if line.startswith("@@"):
            start, _, count = line.split()[1][1:].partition(",")
            first = int(start) - (count != "0")
            found += one[at:first]
            at = first
            continue
        assert line[0] == "+" or one[at] == line[1:]
        at += line[0] != "+"
        found += [line[1:]] * (line[0] != "-")
    return found + one[at:]


@pytest.mark.parametrize("letters", [1, 3, 200])
def test_a_difference_of_short_lists_is_that_of_difflib(letters: int):
    rng = random.Random(letters)
    for _ in range(100):
        one = [str(rng.randrange(letters)) for _ in range(rng.randrange(120))]
        other = changed(one, rng)
        wanted = list(difflib.unified_diff(one, other, *NAMES, lineterm=""))
        assert list(difference.unified(one, other, NAMES)) == wanted


@pytest.mark.parametrize("letters", [1, 3, 200])
def test_a_difference_of_long_lists_leads_from_one_to_the_other(letters: int):
    rng = random.Random(letters)
    for size in (0, 257, 700, 5000):
        for _ in range(10):
            one = [str(rng.randrange(letters)) for _ in range(size)]
            other = changed(one, rng)
            text = list(difference.unified(one, other, NAMES))
            assert patched(one, text) == other


def capture(path: Path, values: list[int]) -> None:
    """Write a capture of a submission a value, each one fill."""
    spec = {"place": "HOST"}
    records = [
        {"t": "hcq-capture", "version": 1},
        {"t": "device", "id": 1, "name": "cpu", "arch": "x86_64", "cpu": True},
        {"t": "buffer", "id": 2, "device": 1, "va": 4096, "size": 64, "spec": spec, "label": "weights"},
    ]
    for number, value in enumerate(values, 1):
        fill = {"c": "Fill", "dst": [2, 0], "value": value, "size": 64}
        records.append(
            {"t": "submit", "n": number, "device": 1, "queue": "compute 0", "label": "", "commands": [fill]}
        )
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records))


def test_10_000_submissions_differ_in_the_changed_ones(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """A comparison of all lines with all takes minutes here."""
    one, other = tmp_path / "one.jsonl", tmp_path / "other.jsonl"
    values = [number % PERIOD for number in range(10_000)]
    capture(one, values)
    places = sorted(random.Random(0).sample(range(len(values)), 10))
    for place in places:
        values[place] += 1000
    del values[5000:5300]
    capture(other, values)
    assert main(["diff", str(one), str(one)]) == 0
    assert capsys.readouterr().out == "10000 submissions, no difference\n"
    assert main(["diff", str(one), str(other)]) == 1
    lines = capsys.readouterr().out.splitlines()[2:]
    left = [place for place in places if not 5000 <= place < 5300]
    added = [line.split("value=")[1].split()[0] for line in lines if line[0] == "+"]
    assert added == [str(place % PERIOD + 1000) for place in left]
    assert sum(line[0] == "-" for line in lines) == len(left) + 600
