"""Captures of submissions (`HCQ_CAPTURE`): printed, compared, and replayed on a device.

Not here: the format of the file (`hcq.capture.log`). Next: `text`, a capture as text; `replayer`, which sends
it again.
"""
