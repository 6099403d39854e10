"""Starting a job with the plugin switched on. Standard library only: this sits in front of every
rank.
"""
