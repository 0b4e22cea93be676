"""The order of blocks: loops are contiguous, and joins follow their predecessors; and liveness."""

from __future__ import annotations

import random
from typing import Any

from emulator.simt.schedule import FlowNode, liveness, order


def nodes(*successors: Any) -> list[FlowNode]:
    return [FlowNode(tuple(s)) for s in successors]


def test_a_join_follows_both_branches_in_any_source_order():
    graph = nodes([3, 1], [2], [], [1])  # 3 is written last and leads back to the join 1
    assert order(graph) == [0, 3, 1, 2]


def test_a_loop_is_contiguous_and_precedes_its_exit():
    graph = nodes([1], [4, 2], [3], [1], [])
    assert order(graph) == [0, 1, 2, 3, 4]
    assert [n.in_loop for n in graph] == [False, True, True, True, False]


def test_nested_loops_are_contiguous():
    graph = nodes([1], [2], [3], [2, 4], [1, 5], [])
    assert order(graph) == [0, 1, 2, 3, 4, 5]


def test_a_loop_with_two_entries_is_arranged():
    graph = nodes([1, 2], [2], [1, 3], [])
    found = order(graph)
    assert found[0] == 0
    assert found[-1] == 3
    assert sorted(found) == [0, 1, 2, 3]


def test_unreachable_blocks_are_left_out():
    assert order(nodes([2], [2], [])) == [0, 2]


def test_a_loop_at_the_entry_ends():
    assert order(nodes([0, 1], [])) == [0, 1]


def test_random_graphs_are_ordered_once_each_and_forward_where_they_have_no_loop():
    rng = random.Random(1)
    for _ in range(300):
        count = rng.randrange(2, 12)
        graph = nodes(*[rng.sample(range(count), rng.randrange(min(3, count))) for _ in range(count)])
        found = order(graph)
        assert len(set(found)) == len(found)
        place = {block: i for i, block in enumerate(found)}
        for block in found:
            for target in graph[block].successors:
                if not (graph[block].in_loop and graph[target].in_loop):
                    assert place[target] > place[block]


def test_registers_live_through_a_loop():
    graph = [
        FlowNode((1,), frozenset(), frozenset({"x", "n"})),
        FlowNode((1, 2), frozenset({"x", "n"}), frozenset({"x"})),
        FlowNode((), frozenset({"x"})),
    ]
    liveness(graph, order(graph))
    assert graph[1].live_in == {"x", "n"}
    assert graph[1].live_out == {"x", "n"}
    assert graph[2].live_in == {"x"}
    assert graph[0].live_in == frozenset()
