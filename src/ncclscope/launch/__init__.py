"""Start of a job. In: a command and settings. Out: a child process that is recorded.

Standard library only: `ncclscope run` starts in front of every rank.
"""
