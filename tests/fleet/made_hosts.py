"""Traces of several hosts of one capture, made by hand, whose answer a person can compute."""

from traces import event, host, line, plane, xspace

MS, SECOND = 10**9, 10**9
REDUCE = "CollectiveReduceV2:CollectiveReduceV2"
EXCHANGE = 5  # ms that the exchange itself takes


def hosts_of(folder, works, *, start_s=10**9, shifts=(), first=(), group=1, instance=0, slow_op="work:MatMul", python=(), runs=(), hostname="{}"):
    """A trace per host: in step s host h computes works[h][s] ms, then all meet and exchange for 5 ms.

    Each step a host computes, then waits for the longest, then exchanges; 2 ms of Python are between steps, and
    python[h] ms more. The hosts' clocks are off by shifts[h] seconds, and host h records from step first[h] on.
    """
    files = []
    count = len(works[0])
    arrive = [[0] * count for _ in works]
    begin = [[0] * count for _ in works]
    leave, at = [], [10] * len(works)
    for step in range(count):
        for one, work in enumerate(works):
            begin[one][step] = at[one]
            arrive[one][step] = at[one] + work[step]
        leave.append(max(row[step] for row in arrive) + EXCHANGE)
        at = [leave[-1] + 2 + (python[one] if python else 0) for one in range(len(works))]
    for one, work in enumerate(works):
        calls, pool, exchange = [], [], []
        for step in range(first[one] if first else 0, count):
            b, a, end = (t * MS for t in (begin[one][step], arrive[one][step], leave[step]))
            calls += [event("train_step", b, end - b, _r=1, step_num=step, tf_function_call="notTraced-nonXla"),
                      event("FunctionRun", b, 1, _r=1, _pt=2, _p=step + 7)]
            pool += [event("ExecutorState::Process", b, a - b, _ct=2, _c=step + 7), event(slow_op, b, a - b)]
            exchange += [event(REDUCE, a, end - a, instance_key=instance + step, group_key=group)]
        shift = shifts[one] if shifts else 0
        stats = {"profile_start_time": (start_s + shift) * SECOND, "profile_stop_time": (start_s + shift + 9) * SECOND}
        run = folder / (runs[one] if runs else "run")
        run.mkdir(parents=True, exist_ok=True)
        file = run / f"worker-{one}.xplane.pb"
        planes = host(line("python", *calls, line_id=1), line("tf_Compute", *pool, line_id=2), line("collective_ops", *exchange, line_id=3))
        file.write_bytes(xspace(planes, plane("Task Environment", stats=stats), hostnames=[hostname.format(f"worker-{one}")]))
        files.append(file)
    return files


STEPS = 12
EVEN = [[10] * STEPS for _ in range(3)]
SLOW = [[10] * STEPS, [40] * STEPS, [12] * STEPS]
