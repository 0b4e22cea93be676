"""Command-line tools: `python -m tools.NAME`.

The packages of the product do not import them, and the wheel does not contain them. Each has `--help`.

Not here: programs that test (`tests.fuzz`, `tests.mutants`). Next: `tools.check` (lint, types, layering),
`tools.bench`, `tools.bringup`, `tools.hardware_run`.
"""
