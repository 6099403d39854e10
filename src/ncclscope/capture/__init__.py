"""Captures as bytes: what the plugin wrote, as numpy arrays, without a meaning yet."""
