"""How many bars a single HTML file holds; what a request may ask for is in routes.py."""

MOST_BARS = 100_000  # of a single file
