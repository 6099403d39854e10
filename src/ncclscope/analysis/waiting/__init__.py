"""Causes of waiting. In: a run. Out: origins, the critical path, what-if predictions.

kernels.py        operations of all ranks with times, in the order of calls
communicator_classes.py  which communicators are peers of each other
clocks.py         clocks of nodes brought together by the ends of collectives
positions.py      where a call stands in its rank's repeating sequence of calls
arrivals.py       whom each kernel waited for
overlap.py        whether work runs beside the kernel before, or needs its end
dependencies.py   which event each event followed
late_calls.py     whether late calls waited for a kernel, or their host was busy
usual_lengths.py  how long each edge between events usually is
slow_launches.py  how much of that is a host that is slow to launch
shared_work.py    work between collectives that stages without peers have in common
own_past.py       what is usual of communicators and stages without peers
delays.py         waits charged to the edges that were longer than usual
origins.py        charges by rank and communicator: the account of waiting
critical_path.py  the chain of events that a run or a span of it is as long as
path_parts.py     what a path runs through
path_edges.py     a path edge by edge
windows.py        the account of a long run, one window of time after another
standing_out.py   ranks and communicators that stand out among their peers
root_causes.py    ranks and communicators whose delays make the run longer
main_origin.py    the one rank of a few that most waiting begins on
whole_hosts.py    a host all of whose ranks take longer than any other rank
host_leaders.py   ranks at one place of every host, which are late by design
slower_groups.py  communicators that are far slower than their peers
pauses.py         single delays of ranks that cost a notable part of the run
own_courses.py    work before a kernel that another kernel hides
prediction.py     what a run would take, as a number or a range
replay.py         when everything would have happened with other lengths
sampled_delays.py late ranks by arrivals alone, where few operations are timed
short_steps.py    steps that are short for all ranks, for what-ifs
"""
