"""The verb `demo`. In: nothing. Out: a job's NCCL callbacks to play, as transcripts.

`doctor` and tests play them through the plugin; no GPU is needed.
"""
