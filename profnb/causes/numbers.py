"""The numbers that steer the rules, and how each was found."""

from profnb.core.units import PS_PER_S
from profnb.steps.program_kind import JAX, PYTORCH

# What is worth saying: a twentieth of the cell, as a change is hardly seen below it, run to run (two runs of
# a cell of seconds differ by 3 to 10 % on the machines that this was written on).
LEAST_SHARE = 0.05
LEAST_PS = LEAST_SHARE * PS_PER_S  # of a cell that ran; nobody waits for less of a second
# What is done "less often" is done every fifth time: of what it took a fifth remains at most.
SELDOM = 5
# Of what a remedy is for, so much remains at most: what people reached was 60 to 100 % in the programs of
# tests/benchmarks/gains.py, and 80 to 100 % in eight on an H200. A batch five times as large saved 53 to 80 %
# of steps of short ops in five programs of PyTorch. So no remedy has a range of over 40 points.
LEFT = 0.4
# From so many times on, what is set up each time is told by all of them: of fewer the first, in which
# functions are traced and threads start, is too large a part (10 to 100 times as long in all programs tried).
FEWEST = 5
# Of what doing the turns of a loop at once saves, so much may be lost again, as the ops are larger then: maps
# over 64 to 500 rows of 6 to 40 numbers kept 0 to 20 % of it. Of what Python and calls took, several steps in
# a call left 0 to 6 % in fits of three models (steps of 0.5 to 20 ms); a slower machine may keep more. And of
# steps of 1.1 ms behind a callback of 1.5 ms so much went with it: their threads and caches stayed warm.
QUARTER = 0.25
# From this share on a part is as good as the whole: a range from nothing to it says nothing, and a function
# that holds so much of another is the one to name.
NEARLY_ALL = 0.95
# So many times as long as usual is another kind of thing: a model is saved, data is read anew. What varied by
# itself stayed below three times in all programs tried.
FAR_LONGER = 5
# Python comes from one op to the next within it, wherever nothing else runs between (20 to 150 us).
CLOSE_PS = 200_000_000
# Of the time, from which on the device is what limits: with 16 bits each of 14 recorded runs whose device
# idled more was slower, as casts are kernels too; where it idles less, a step may grow as much as its batch.
LIMITING = 0.75
# It takes as long to hand a batch over from a worker, or for Keras to slice arrays and convert them.
HAND_OVER_PS = 1_000_000_000
# Operations a second: convolutions of 16 bits in software did 0.15 to 0.6e9, of 32 bits a core does several.
SLOWEST_PRODUCT = 1e9
# A call of a compiled function of JAX and PyTorch: x + 1 took 5 to 13 us by jax.jit and 7 to 13 us by
# torch.compile, three layers forward and backward 130 us.
CALL_PS = {JAX: (5_000_000, 50_000_000), PYTORCH: (7_000_000, 150_000_000)}
