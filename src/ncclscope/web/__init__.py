"""The timeline in the browser: what a capture's lanes show, and the local server that sends it."""
