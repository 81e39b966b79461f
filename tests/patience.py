"""Tests that compare with the wall clock: a shared machine may be busy with something else, so they get three tries."""

import functools

TRIES = 3


def patient(test):
    """Run a test again if what it measured was off; it fails if it is off each time."""

    @functools.wraps(test)
    def tried(*args, **kwargs):
        for attempt in range(TRIES):
            try:
                return test(*args, **kwargs)
            except AssertionError:
                if attempt == TRIES - 1:
                    raise
        return None

    return tried
