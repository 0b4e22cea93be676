"""Command-line tools: `python -m tools.NAME`.

The product packages do not import them; the wheel excludes them.

Next: `tools.check` (lint, types, layering), `tools.bench`, `tools.bringup`, `tools.hardware_run`,
`tests.fuzz`, `tests.mutants`; each has `--help`.
"""
