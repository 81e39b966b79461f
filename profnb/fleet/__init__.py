"""Several hosts of one capture: who holds the others up, by how much, and why.

collectives     a trace to its collectives, with keys that are the same on every host
own_work        what a host did between them, by category
digest          one host's part: all that the fleet needs of it, small enough to travel
merging         digests to steps: own work, waiting, exchange; and what lies between the hosts' clocks
verdict         who is waited for, with an interval, and what it has more of than the others
fleet_tables, fleet_section   the tables, and how they are shown

The definitions. Between leaving one collective and entering the next a host does its *own work*. It then
*waits* as long as the longest own work is longer than its own, at most for the time that it is in the
collective; what is left of that is *exchange*. Own work, waiting and exchange add up to a step exactly. Only
durations by one clock are used; what lies between clocks is estimated to draw them on one line, never to
judge.
"""
