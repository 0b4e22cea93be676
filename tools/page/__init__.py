"""Make one self-contained HTML page of a program's run: graphs, schedules, nests, code and times.

Next: `tools.page.__main__`, the command.
"""
