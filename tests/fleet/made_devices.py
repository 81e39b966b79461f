"""A trace of one process that trains on several GPUs, made by hand, whose answer a person can compute."""

from traces import event, gpu, host, line, xspace

MS = 10**9
EXCHANGE = 5  # ms that the exchange itself takes
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def devices_of(works, *, late=(), copies=(), kernel="gemm", nccl=NCCL, rooted=False, skews=(), more=(), groups=()):
    """In step s GPU g computes works[g][s] ms, then all meet and exchange for 5 ms; 2 ms later the next step begins.

    The host launches to GPU g late[g] ms after the step's begin; GPU g copies copies[g] ms to the host after its
    kernel. A ``rooted`` exchange lets GPU 0 go after 1 ms. Clocks of GPUs are off by ``skews`` ps. ``more`` are lines of the host. GPUs of
    different ``groups`` exchange apart.
    """
    count = len(works[0])
    calls, launches = [], []
    work, exchange = [[] for _ in works], [[] for _ in works]
    at, number = 10, 0
    for step in range(count):
        begin, arrive = [], []
        for one, own in enumerate(works):
            begin.append(at + (late[one] if late else 0))
            arrive.append(begin[one] + own[step] + (copies[one] if copies else 0))
        ends = [max(a for other, a in enumerate(arrive) if not groups or groups[other] == groups[one]) + EXCHANGE for one in range(len(works))]
        end = max(ends)
        calls.append(event("train", at * MS, (end - at) * MS, step_num=step, _r=1))
        for one in range(len(works)):
            skew = skews[one] if skews else 0
            left = arrive[one] + 1 if rooted and not one else ends[one]
            middle = begin[one] + works[one][step]
            pieces = [(kernel, begin[one], middle, work), (nccl, arrive[one], left, exchange)]
            if copies and copies[one]:
                pieces.append(("MemcpyD2H", middle, arrive[one], work))
            for name, first, last, lines in pieces:
                number += 1
                launches.append(event("cuLaunchKernel", begin[one] * MS - 1000 + 10 * one, 5, correlation_id=number))
                lines[one].append(event(name, first * MS + skew, (last - first) * MS, correlation_id=number))
        at = end + 2
    gpus = [
        gpu(line("Stream #7(Compute)", *work[one], line_id=7), line("Stream #9", *exchange[one], line_id=9), number=one)
        for one in range(len(works))
    ]
    return xspace(host(line("python", *calls, line_id=1), line("launches", *launches, line_id=2), *more), *gpus)


def programs_of(count, steps, program):
    """Each GPU runs its own program in each step: a list of pieces, in order, times in ms.

    ("compute", name, ms), ("copy", ms) from the host, ("next", ms) in which the host waits for its next batch,
    ("idle", ms), ("meet", ms) which starts an exchange beside what follows, and ("join",) which waits for all exchanges. An
    exchange begins on a GPU when its turn comes there, and ends on all that long after the last has begun. A
    step begins 2 ms after all have ended the one before.
    """
    streams = [([], [], []) for _ in range(count)]
    calls, launches, waits = [], [], []
    at = 10.0

    def run(one, name, first, last, stream):
        number = len(launches) + 1
        launches.append(event("cuLaunchKernel", round(at * MS) - 1000 + number % 900, 1, correlation_id=number))
        streams[one][stream].append(event(name, round(first * MS), round((last - first) * MS), correlation_id=number))

    for step in range(steps):
        now, exchanged = [at] * count, [at] * count
        left = [list(program(one, step)) for one in range(count)]
        while any(left):
            for one, pieces in enumerate(left):
                while pieces and pieces[0][0] != "meet":
                    kind, *rest = pieces.pop(0)
                    if kind == "join":
                        now[one] = max(now[one], exchanged[one])
                        continue
                    begin, now[one] = now[one], now[one] + rest[-1]
                    if kind == "next":
                        waits.append(event("IteratorGetNext:IteratorGetNext", round(begin * MS), round(rest[-1] * MS)))
                    elif kind != "idle":
                        run(one, rest[0] if kind == "compute" else "MemcpyH2D", begin, now[one], 0 if kind == "compute" else 2)
            meeting = [one for one, pieces in enumerate(left) if pieces]
            begins = {one: max(now[one], exchanged[one]) for one in meeting}
            for one in meeting:
                exchanged[one] = max(begins.values()) + left[one][0][1]
                left[one].pop(0)
                run(one, NCCL, begins[one], exchanged[one], 1)
        end = max(*now, *exchanged)
        calls.append(event("train", round(at * MS), round((end - at) * MS) + 1, step_num=step, _r=1))
        at = end + 2
    gpus = [gpu(*(line(f"Stream #{7 + 2 * row}", *events, line_id=7 + 2 * row) for row, events in enumerate(of_gpu)), number=one) for one, of_gpu in enumerate(streams)]
    return xspace(host(line("python", *calls, line_id=1), line("launches", *launches, line_id=2), line("feeding", *waits, line_id=3)), *gpus)
