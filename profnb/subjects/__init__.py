"""What the report has a tab for: one folder a subject.

    input, feeds         what tf.data did and how the training waited; what fed it instead, and queues
    memory               what allocators held
    xla, device          what XLA compiled and ran; what the devices did, and their kernels
    ops, bounds          time by op; what bounds each op: operations, memory, neither (the tab "Roofline")
    layers, source, python   time by layer, by line of the user's code, by Python function
    cell                 where the whole cell's wall time went, traced or not
    system               the tab "Machine": what processors, memory, disks and GPUs did meanwhile
    study                one small object per subject of a trace: ``study.input.waiting``
    advising             what every rule of advice is made of
    reads                results that the host waits for in the loop
    starving             queues that steps wait for, and files that are read one by one
    unseen               what to say where there are no steps, or their work was not recorded
    category_words       what the categories of a step are called
    crowded              where threads waited for cores
    covered_time         how much of the time from step to step some spans cover
    uncompilable         ops for which XLA has no kernel
    pieces               what is started one by one where a compiler would make few of it
    threads              how many were set and at work; what is noted of them
    compiled_again       programs that were compiled again and again, and why
    around_ops           how long TensorFlow is at work while no op that it records runs
    between_steps        Python between the steps of a loop, and in them, while nothing else is at work
    eager_runs           ops that Python runs one by one, to what starting them takes
    traced_again         tf.functions that are traced again and again
    slowing              steps that take longer and longer
    repeats              models that are made anew, functions that validate

A subject's ``find`` is its object; the other files hold the analyses, each with the table that it fills;
``section`` shows them and ``advice`` has its rules. What finds never imports what shows. The time
of steps is the spine's (``profnb.steps``); its tab, "Steps", is the report's own.
"""
