"""Every hardware number of the AMD driver, as declarative layouts; each file names its sources.

Not here: any behaviour (`drivers.amd`). Next: docs/reference, all layouts as tables.
"""
