"""Parts of a hardware run: stages, the machine and its description. The command is `tools.hardware_run`.

Next: `stage`, how a stage runs; `box`, the description of the machine; `machine`, what it lacks; `summary`,
the page at the end; `share`, the report without names; `tables`, the tables of the docs.
"""
