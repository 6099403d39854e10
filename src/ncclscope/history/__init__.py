"""Sums of many jobs. In: models, a directory. Out: a file a job and table, and what recurs.

tables.py      the tables: one dataclass a row
sums.py        the sums of one job, from its model
writer.py      jobs into a directory, each file whole or not there
reader.py      jobs of a directory; leaves out what is not whole
trend.py       a host, link, role of communicators or module over the last jobs
late_hosts.py  hosts that are late again and again
slow_links.py  links that are slow again and again
difference.py  a job against the last equal ones
findings.py    what earlier jobs say about a job, as findings of diagnose
pruning.py     what is deleted
"""
