import json
import os
import sys
import time

rank, port, logs = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
workers = [f"localhost:{port + one}" for one in range(4)]
task = {"type": "worker", "index": rank}
os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": workers}, "task": task})
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"

import numpy as np
import tensorflow as tf

import profnb

STEPS = 15
tf.config.threading.set_intra_op_parallelism_threads(1)
strategy = tf.distribute.MultiWorkerMirroredStrategy()
with strategy.scope():
    weights = tf.Variable(tf.ones((256, 1)))


def read_slowly(x):
    if rank == 2:
        time.sleep(0.15)
    return x


def replica_step(x):
    x = tf.ensure_shape(tf.numpy_function(read_slowly, [x], tf.float32), (64, 256))
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(x @ weights))
    gradient = tape.gradient(loss, weights)
    reduce = tf.distribute.get_replica_context().all_reduce
    weights.assign_sub(1e-6 * reduce(tf.distribute.ReduceOp.SUM, gradient))


@tf.function
def train_step(x):
    strategy.run(replica_step, args=(x,))


batch = tf.constant(np.ones((64, 256), "float32"))
with profnb.profile(logdir=logs):
    for step in range(STEPS):
        with profnb.step(step):
            train_step(batch)
