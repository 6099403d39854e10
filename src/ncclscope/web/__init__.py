"""The timeline. In: a capture. Out: tiles and answers for the page in the browser."""
