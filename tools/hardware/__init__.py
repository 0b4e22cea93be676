"""Parts of a hardware run: stages and the description of the machine. The command is `tools.hardware_run`.

Next: `stage`, how a stage runs; `box`, the description of the machine.
"""
