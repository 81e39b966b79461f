"""Several hosts of one capture: who holds the others up, by how much, and why.

collectives                    a trace to its collectives, with keys that are the same on every host
digest                         one host's part, or one device's, small enough to travel
merging                        digests to the hosts that met, and their steps: own work, waiting, exchange
verdict                        who is waited for, with an interval, what that costs, and why; also among the
                               devices of one trace
fleet_section                  the tables, and how they are shown
fleet_timeline                 all hosts in one trace, on the first one's clock, and its timeline

The definitions. Between leaving one collective and entering the next a host does its *own work*. It then
*waits* as long as the longest own work is longer than its own, at most for the time that it is in the
collective; what is left of that is *exchange*. Own work, waiting and exchange add up to a step exactly. Only
durations by one clock are used; what lies between clocks is estimated to draw them on one line, never to
judge.
"""
