"""Walls of the house: what linter and type checker do not see. The command is `python -m tools.walls`.

`arrows` are imports between folders, `names` the public classes with one name, `rooms` their sizes, `clones`
code in two places. `limits.toml` has what is allowed of each today. A limit is exact where it names
something: what is gone must leave the list, so the lists shrink.
"""
