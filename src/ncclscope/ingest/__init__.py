"""Files of other tools as models: a module for each format, and what they have in common."""
