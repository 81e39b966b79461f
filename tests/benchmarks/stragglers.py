"""Planted sleeps in a job of four ranks: does the fleet name the rank, the cause and the milliseconds?

    python tests/benchmarks/stragglers.py matrix FOLDER     sleeps of 0, 10, 20 and 40 % of the step
    python tests/benchmarks/stragglers.py stops FOLDER [N [COLLECTIVES [SCALE]]]    how often a rank dies when its
                                                            profiler stops; exchanges a step, how long it sleeps
                                                            (RANKS=2 STEPS=10 in the environment: a shorter job)
    python tests/benchmarks/stragglers.py judge FOLDER      the table again, of what is there

Four local processes train together (``MultiWorkerMirroredStrategy`` over the loopback, host names of their own where
``unshare -u`` is allowed), mostly asleep so that two cores are enough. The job stays alive over many captures; each
captures itself as a user would, and measures with its own clock how long what was planted took. Where a rank dies,
which TensorFlow's own profiler does when it stops, all are started again and go on; that is counted. What is done is
done: the same command goes on where it was interrupted.
"""

import json
import math
import os
import random
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

RANKS, STEPS, STEP_MS = int(os.environ.get("RANKS", "4")), int(os.environ.get("STEPS", "20")), 200
ASLEEP_MS = {"input": 30, "compute": 90, "host": 30}  # of each step, on every rank
FRACTIONS, INNOCENT, HIDDEN = (0.1, 0.2, 0.4), 40, "hidden"  # input that a buffer hides costs nobody anything
WAYS = (("bare", STEPS), ("bare, quiet", STEPS))  # quiet: half a second after the last exchange, as profnb does
# In what own work the fleet may say that it lies: Python runs in the step or between steps.
CAUSES = {"input": ("waiting for input",), "compute": ("host compute",), "host": ("Python between steps", "Python inside the step")}
_START_S, _PATIENCE_S = 400, 150  # on a busy machine
_HUNG = -1000


def matrix():
    """The captures to take, each a name and what is planted where."""
    planted = [{"kind": kind, "fraction": fraction, "rank": rank} for kind in ASLEEP_MS for fraction in FRACTIONS for rank in range(RANKS)]
    hidden = [{"kind": HIDDEN, "fraction": 0.4, "rank": rank} for rank in range(RANKS)]
    nothing = [{"kind": "", "fraction": 0.0, "rank": -1}] * INNOCENT
    mixed = [*planted, *hidden, *nothing]
    random.Random(0).shuffle(mixed)  # a machine that is busy for a while is so for all kinds
    return [{"name": f"{at:03d}", "how": "profnb", "steps": STEPS, **one} for at, one in enumerate(mixed)]


def stops(count):
    """Captures in which nothing is planted, of several lengths and ended in several ways, by turns."""
    by_turns = (WAYS[at % len(WAYS)] for at in range(count * len(WAYS) // RANKS))
    return [{"name": f"{at:03d}", "how": how, "steps": steps, "kind": "", "fraction": 0.0, "rank": -1} for at, (how, steps) in enumerate(by_turns)]


def run_rank(rank, port, folder, collectives, scale):
    """One process of the job: every capture that is still to be taken; so many exchanges a step, such sleeps."""
    workers = [f"localhost:{port + one}" for one in range(RANKS)]
    os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": workers}, "task": {"type": "worker", "index": rank}})
    import numpy as np
    import tensorflow as tf

    import profnb

    tf.config.threading.set_intra_op_parallelism_threads(1)
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        weights = [tf.Variable(tf.ones((256, 1))) for _ in range(collectives)]
    more = dict.fromkeys((*ASLEEP_MS, HIDDEN), 0.0)
    planted_s = []

    def sleep(kind):
        time.sleep(scale * ASLEEP_MS.get(kind, ASLEEP_MS["input"]) / 1000)
        begin = time.perf_counter()
        if more[kind]:
            time.sleep(more[kind] / 1000)
            planted_s.append(time.perf_counter() - begin)

    def compute(x):
        sleep("compute")
        return x

    def elements(kind):
        while True:
            sleep(kind)
            yield np.ones((64, 256), "float32")

    def batches_of(kind):
        options = tf.data.Options()  # by default a buffer is put behind it
        options.experimental_optimization.inject_prefetch = kind == HIDDEN
        made = tf.data.Dataset.from_generator(lambda: elements(kind), output_signature=tf.TensorSpec((64, 256), tf.float32))
        return iter(made.with_options(options))

    def replica_step(x):
        x = tf.ensure_shape(tf.numpy_function(compute, [x], tf.float32), (64, 256))
        with tf.GradientTape() as tape:
            loss = sum(tf.reduce_mean(tf.square(x @ one)) for one in weights)
        for one, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
            one.assign_sub(1e-6 * tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, gradient))

    @tf.function
    def train_step(x):
        strategy.run(replica_step, args=(x,))

    exposed, hidden = batches_of("input"), batches_of(HIDDEN)

    def train(steps, batches=exposed):
        for step in range(steps):
            with profnb.step(step):
                train_step(next(batches))
            sleep("host")

    @contextmanager
    def captured(how, logdir):
        if how.startswith("bare"):
            tf.profiler.experimental.start(logdir)
            yield
            tf.profiler.experimental.stop()
        else:
            with profnb.profile(logdir=logdir):
                yield

    train(2)
    for one in json.loads((folder / f"todo.{rank}.json").read_text()):
        train(2)  # all ranks together again
        more.update(dict.fromkeys(more, 0.0))
        if one["rank"] == rank:
            more[one["kind"]] = one["fraction"] * STEP_MS
        planted_s.clear()
        kept = folder / one["name"]
        kept.mkdir(exist_ok=True)
        (kept / f"{rank}.begun").touch()
        begin = time.perf_counter()
        with captured(one["how"], str(kept / "logs")):
            train(one["steps"], hidden if one["kind"] == HIDDEN else exposed)
            step_ms = (time.perf_counter() - begin) * 1e3 / one["steps"]
            if "quiet" in one["how"]:  # until no rank is in a collective any more
                time.sleep(0.5)
        more.update(dict.fromkeys(more, 0.0))
        (kept / f"{rank}.json").write_text(json.dumps({"planted_ms": sum(planted_s) * 1e3 / one["steps"], "step_ms": step_ms}))
    os._exit(0)


def is_done(folder, one):
    return all((folder / one["name"] / f"{rank}.json").exists() for rank in range(RANKS))


def run_job(folder, todo, collectives, scale):
    """Start the ranks; the exit codes of those that ended by themselves when the first one died, or all."""
    port = random.randrange(20_000, 30_000)
    apart = subprocess.run(["unshare", "-u", "true"], capture_output=True, check=False).returncode == 0
    running = []
    for rank in range(RANKS):
        (folder / f"todo.{rank}.json").write_text(json.dumps(todo))
        command = [sys.executable, __file__, "rank", str(rank), str(port), str(folder), str(collectives), str(scale)]
        if apart:
            command = ["unshare", "-u", "sh", "-c", f'hostname worker-{rank} && exec "$@"', "sh", *command]
        log = (folder / f"log.{rank}").open("ab")
        quiet = {"TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": "-1", "PYTHONFAULTHANDLER": "1"}
        running.append(subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **quiet}))
    done, seen = 0, time.monotonic()
    try:
        while True:
            codes = [one.poll() for one in running]
            if all(code == 0 for code in codes):
                return codes
            if any(code not in (None, 0) for code in codes):
                time.sleep(0.2)  # others may be about to die of the same stop
                return [one.poll() for one in running]
            now = sum(is_done(folder, one) for one in todo)
            if now > done:
                done, seen = now, time.monotonic()
            begun = any((folder / one["name"]).exists() for one in todo)
            if time.monotonic() - seen > (_PATIENCE_S if done or begun else _START_S):
                return [_HUNG] * RANKS
            time.sleep(0.2)
    finally:
        for one in running:
            one.kill()
            one.wait()


def run_all(folder, captures, collectives=1, scale=1.0):
    folder.mkdir(parents=True, exist_ok=True)
    deaths = folder / "deaths.jsonl"
    while todo := [one for one in captures if not is_done(folder, one)]:
        for one in todo:  # what is left of one that was interrupted
            if (folder / one["name"]).exists():
                (folder / one["name"]).rename(folder / f"lost-{one['name']}-{time.time_ns()}")
        codes = run_job(folder, todo, collectives, scale)
        if any(codes):
            at = next((one for one in todo if not is_done(folder, one)), None)
            if at is None:
                continue
            kept = folder / at["name"]
            stopped = [rank for rank in range(RANKS) if (kept / f"{rank}.json").exists()]
            with deaths.open("a") as file:
                file.write(json.dumps({**at, "codes": codes, "came_through": stopped, "begun": (kept / "0.begun").exists()}) + "\n")


def _middle(values):
    """The median of what lies off, with its sign, and the one that lies off most."""
    ordered = sorted(values)
    return f"{ordered[len(ordered) // 2]:+.1%}, {max(ordered, key=abs):+.1%}"


def lower_bound(good, tries):
    """Of a rate, with 95 % confidence: Wilson's."""
    z, rate = 1.96, good / tries
    return (rate + z * z / 2 / tries - z * math.sqrt(rate * (1 - rate) / tries + z * z / 4 / tries**2)) / (1 + z * z / tries)


def count_deaths(folder, captures):
    deaths = [json.loads(line) for line in (folder / "deaths.jsonl").read_text().splitlines()] if (folder / "deaths.jsonl").exists() else []
    print(f"\n{'stopped by':16} steps captures   ranks that stopped   ranks that died")
    for how, steps in dict.fromkeys((one["how"], one["steps"]) for one in captures):
        done = sum((one["how"], one["steps"]) == (how, steps) and is_done(folder, one) for one in captures)
        of_it = [one for one in deaths if (one["how"], one.get("steps", STEPS)) == (how, steps) and one["begun"]]
        dead = sum(code not in (None, 0, _HUNG) for one in of_it for code in one["codes"])
        hung = sum(_HUNG in one["codes"] for one in of_it)
        through = RANKS * done + sum(len(one["came_through"]) for one in of_it)
        print(f"{how:16} {steps:5} {done + len(of_it):8}   {through + dead:18}   {dead:4} ({dead / max(through + dead, 1):.1%})" + (f", {hung} hung" if hung else ""))
    print("exit codes:", sorted(code for one in deaths for code in one["codes"] if code))


def judge(folder, captures):
    """What the fleets say, beside what was planted."""
    import profnb

    rows, wrong = [], []
    for one in captures:
        if not is_done(folder, one):
            continue
        fleet = profnb.load_fleet(folder / one["name"] / "logs")
        told = [json.loads((folder / one["name"] / f"{rank}.json").read_text()) for rank in range(RANKS)]
        planted = told[one["rank"]]["planted_ms"] if one["kind"] else 0.0
        hosts = fleet.hosts
        step = float(hosts.step_ms.mean())
        named = hosts["rank"][hosts.host.isin(fleet.stragglers)].tolist()
        row = {**one, "planted_ms": planted, "step_ms": step, "named": named, "steps": int(hosts.steps.iloc[0])}
        is_guilty = one["kind"] in CAUSES
        if is_guilty:
            is_it = hosts["rank"] == one["rank"]
            caused = float(hosts.caused_ms[is_it].iloc[0])
            longer = float(hosts.own_ms[is_it].iloc[0] - hosts.own_ms[~is_it].median())
            row |= {"off": caused / planted - 1, "off_own": longer / planted - 1, "is_rank": named == [one["rank"]],
                    "is_cause": any(f"more {cause} than" in fleet.verdict for cause in CAUSES[one["kind"]])}
        rows.append(row)
        is_wrong = named != [one["rank"]] or not row["is_cause"] or abs(row["off"]) > 0.15 if is_guilty else bool(named)
        if is_wrong and (not is_guilty or one["fraction"] >= 0.2):
            wrong.append(f"{one['name']} {one['kind']} {one['fraction']:.0%} rank {one['rank']} ({planted:.1f} ms): {fleet.verdict} {hosts.caused_ms.round(1).tolist()}")
    print(f"{'planted':8} {f'of {STEP_MS} ms':>9} {'of the step':>11} captures  rank named  and cause   holds up: within 15 %, median, worst   own work longer: within 15 %, median, worst")
    for kind in CAUSES:
        for fraction in FRACTIONS:
            of_it = [row for row in rows if row["kind"] == kind and row["fraction"] == fraction]
            if not of_it:
                continue
            share = sum(row["planted_ms"] / row["step_ms"] for row in of_it) / len(of_it)
            both = sum(row["is_rank"] and row["is_cause"] for row in of_it)
            told = "".join(f"{sum(abs(row[key]) <= 0.15 for row in of_it):22}   {_middle(row[key] for row in of_it)}" for key in ("off", "off_own"))
            print(f"{kind:8} {fraction:9.0%} {share:11.1%} {len(of_it):8} {sum(row['is_rank'] for row in of_it):11} {both:10} {told}")
    for kind in ("", HIDDEN):
        innocent = [row for row in rows if row["kind"] == kind]
        if innocent:
            quiet = sum(not row["named"] for row in innocent)
            print(f"{kind or 'nothing':8} {innocent[0]['fraction']:9.0%} {'':11} {len(innocent):8}  nobody named in {quiet} ({quiet / len(innocent):.1%}; at least {lower_bound(quiet, len(innocent)):.0%} with 95 % confidence)")
    print(f"steps of {min(row['step_ms'] for row in rows):.0f} to {max(row['step_ms'] for row in rows):.0f} ms, {min(row['steps'] for row in rows)} to {max(row['steps'] for row in rows)} steady ones each")
    print("\n".join(["", *wrong]))
    count_deaths(folder, captures)


if __name__ == "__main__":
    what, *more = sys.argv[1:]
    if what == "rank":
        run_rank(int(more[0]), int(more[1]), Path(more[2]), int(float(more[3])), float(more[4]))
    elif what == "stops":
        captures = stops(int(more[1]) if len(more) > 1 else 60)
        run_all(Path(more[0]), captures, *map(float, more[2:]))
        count_deaths(Path(more[0]), captures)
    else:
        if what == "matrix":
            run_all(Path(more[0]), matrix())
        judge(Path(more[0]), matrix())
