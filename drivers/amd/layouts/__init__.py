"""Every hardware number of the AMD driver, as declarative layouts; each file names its sources.

Not here: any behaviour (`drivers.amd`). All layouts as tables:
`python -m tools.reference --pages FOLDER`.
"""
