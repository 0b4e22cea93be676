"""Command-line tools: `python -m tools.NAME`. Nobody imports them."""
