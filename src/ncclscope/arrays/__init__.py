"""Loops over columns that are compiled (native/arrays): no meaning, only numbers."""
