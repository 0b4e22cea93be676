"""Tools of the AMD driver: a scripted kernel."""
