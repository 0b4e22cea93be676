"""The table of the kinds of lines in tensor programs, with their frequencies.

Not here: the lines (`tensor_elementwise`, `tensor_movement`, `tensor_reductions`, `tensor_smooth`,
`tensor_graphs`, `tensor_functions`, `tensor_writes`, `tensor_wide`). Next: `tensor_programs`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.fuzz import tensor_elementwise as elementwise
from tests.fuzz import tensor_functions as functions
from tests.fuzz import tensor_graphs as graphs
from tests.fuzz import tensor_movement as movement
from tests.fuzz import tensor_reductions as reductions
from tests.fuzz import tensor_smooth as smooth
from tests.fuzz import tensor_wide as wide
from tests.fuzz import tensor_writes as writes

if TYPE_CHECKING:
    from tests.fuzz.tensor_programs import Kinds

KINDS: Final[Kinds] = (
    (elementwise.binary, 5),
    (elementwise.compare, 1),
    (elementwise.unary, 3),
    (elementwise.choose, 1),
    (elementwise.convert, 4),
    (elementwise.through_bfloat16, 1),
    (elementwise.beside_variable, 1),
    (movement.same, 2),
    (movement.reshape, 3),
    (movement.move, 5),
    (movement.join, 2),
    (movement.at_variable, 2),
    (movement.at_index, 1),
    (reductions.reduce, 2),
    (reductions.along, 2),
    (writes.write, 4),
    (writes.write_at_variable, 1),
)
WIDE: Final[Kinds] = (
    *KINDS,
    (wide.at_lists, 3),
    (wide.write_at_lists, 4),
    (wide.in_place, 6),
    (wide.einsum, 3),
    (wide.select, 8),
)
"""Kinds of the wider API, with lists as indices, which a capture refuses."""
STATES: Final[Kinds] = (*KINDS, (elementwise.mixed, 2), (elementwise.through_float8, 2))
"""Kinds of captured functions that write what lives outside; two dtypes are promoted, 8-bit floats stored."""
SMOOTH: Final[Kinds] = (
    (smooth.binary, 6),
    (smooth.unary, 4),
    (smooth.convert, 1),
    (smooth.reduce, 4),
    (smooth.gather, 1),
    (movement.same, 1),
    (movement.reshape, 2),
    (movement.move, 5),
    (movement.join, 2),
    (movement.at_variable, 1),
    (writes.write, 3),
    (writes.write_at_variable, 1),
)
"""Kinds for differentiated programs: values and slopes of small integers stay exact."""
SLOPES: Final[Kinds] = (
    (functions.unary, 6),
    (functions.binary, 9),
    (functions.reduce, 5),
    (functions.rows, 4),
    (functions.product, 3),
    (functions.picture, 4),
    (movement.same, 1),
    (movement.reshape, 3),
    (movement.move, 8),
    (movement.join, 3),
)
"""Kinds for functions of floats that have a slope almost everywhere."""
FUNCTIONS: Final[Kinds] = (*SLOPES, (writes.write, 4))
"""Kinds for functions of floats, compared within errors that grow."""
CHAINS: Final[Kinds] = ((graphs.chain, 1),)
GRAPHS: Final[Kinds] = (
    (smooth.binary, 6),
    (smooth.unary, 4),
    (smooth.reduce, 3),
    (graphs.product, 4),
    (graphs.convolution, 4),
    (graphs.pool, 1),
    (graphs.row, 3),
    (graphs.rows_within_bounds, 2),
    (graphs.first_elements, 2),
    (graphs.embedding, 2),
    (movement.same, 1),
    (movement.reshape, 2),
    (movement.move, 5),
    (movement.join, 2),
    (movement.at_variable, 1),
    (writes.write, 3),
)
"""Kinds for the scheduler: sums of small integers, which are exact in any order."""
