"""Devices: their kernels, copies and launches, and why one was idle.

devices               one row per device; copies by direction; GPUs that the program does not use
kernels, precision    each kernel, by the op that asked for it; the width of the numbers that it computes with
launches              what set device work going, and how long that waited; streams
idle                  why the busiest device was idle
roofline              what a device could do at most; XLA's ops under that roof
section               how it is shown
"""
