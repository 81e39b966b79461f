"""What the report has a tab for: one folder a subject.

    input, memory        what tf.data did and how the training waited; what allocators held
    xla, device          what XLA compiled and ran; what the devices did
    cell                  where the whole cell's wall time went, traced or not
    system                what the machine did meanwhile: processors, memory, disks, GPUs and their energy
    ops, layers, source, python   time by op, by layer, by line of the user's code, by Python function
    study                one small object per subject: ``study.input.waiting``
    advising             what every rule of advice is made of
    read_advice          what is said of results that the host waits for in the loop
    unseen               what to say where there are no steps, or their work was not recorded

A subject's ``find`` is its object; the other files hold the analyses, each with the table that it fills;
``section`` shows them and ``advice`` has its rules. What finds never imports what shows.
"""
