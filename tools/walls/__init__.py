"""Limits of the source tree that linters do not check. The command is `python -m tools.walls`.

`arrows` finds imports between folders that run in a circle, `names` public classes that share a name, `rooms`
the lines of each package, `clones` code in two files. `limits.toml` has the exceptions that are allowed
today, and the most lines of each package. An exception that is gone must leave the list, so the lists only
shrink.

Not here: lint, types, imports between packages (`tools.check`). Next: `__main__`, the command.
"""
