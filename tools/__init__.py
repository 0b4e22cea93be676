"""Command-line tools: `python -m tools.NAME`. No product package imports them, and no wheel has them.

Next: `tools.check` (lint, types, layering), `tools.bench`, `tools.bringup`, `tools.hardware_run`,
`tools.fuzz`, `tools.mutants`; each has `--help`.
"""
