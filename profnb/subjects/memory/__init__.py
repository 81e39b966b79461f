"""What allocators held over time and at the peak.

allocators, samples    what was in use after every allocation; what was held and reserved over time
peak, use              what was alive at the peak; what grows, and what would fit
find                   all of it for one trace
section                how it is shown
"""
