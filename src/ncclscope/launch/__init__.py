"""Starts a job with the plugin switched on.

Standard library only: `ncclscope run` starts in front of every rank.
"""
