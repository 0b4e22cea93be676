"""Every hardware number of the AMD driver, as declarative layouts; each file names its sources."""
