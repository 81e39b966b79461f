"""Subjects of a trace, one folder each: all that the report has a tab for.

    input, feeds         what tf.data did and how the training waited; what fed it instead, and queues
    memory               what allocators held
    xla, device          what XLA compiled and ran; what the devices did, and their kernels
    ops, bounds          time by op; what bounds each op: operations, memory, neither (the tab "Roofline")
    layers, source, python   time by layer, by line of the user's code, by Python function
    cell                 where the whole cell's wall time went, traced or not
    system               the tab "Machine": what processors, memory, disks and GPUs did meanwhile
    study                all that is found of a trace, one object per subject: ``study.input.waiting``
    advising             shares of time that rules of advice ask for
    unseen               what to say where there are no steps, or their work or thread was not recorded
    core_contention      threads that waited for cores

A subject's files hold the analyses, each with the table that it fills; ``section`` shows them. What finds
never imports what shows. The time of steps is the spine's (``profnb.steps``); its tab, "Steps", is the
report's own.
"""
