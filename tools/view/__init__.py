"""Make one self-contained HTML page of what was recorded: traces, captures, counters, findings, reports.

Next: `tools.view.__main__`, the command.
"""
