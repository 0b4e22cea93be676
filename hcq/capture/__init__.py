"""Captures: files that hold what a process sent to its devices, for reports and replays.

Not here: reading, printing and replaying a capture (`tools.trace`). Next: `log`, the format of the file;
`recorder`, which writes it.
"""
