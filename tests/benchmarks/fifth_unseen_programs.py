"""A fifth set of twenty programs that nobody tuned to: twelve with a mistake, eight healthy. The right answer was written down before they were run.

The changed cell of a healthy one is what a keen adviser might wrongly suggest; it saves little or nothing. Right means: the first advice names
the cause and its promise holds; for a healthy one, that nothing promises 10 points more than the change saves.
"""

import copy
import tempfile

from public_programs import case
from row_programs import of


def torch_ready(seed):
    """PyTorch imports its compiler with the first optimizer (seconds): before the cell, as in a notebook that has trained already."""
    import torch
    torch.optim.SGD([torch.zeros(1, requires_grad=True)], 0.1)
    torch.manual_seed(seed)


@case("retracing")
def feature_maps_by_a_new_model_for_each_photo():
    """What each layer sees: for each photo and layer a keras.Model(net.input, layer.output), asked by predict.

    Right: a new model (so a new trace) for each predict. Changed: one model of all outputs, asked once.
    """
    import keras, numpy as np
    L = keras.layers
    rng = np.random.default_rng(601)
    photos = rng.random((12, 64, 64, 3), np.float32)
    net = keras.Sequential([keras.Input((64, 64, 3)), L.Conv2D(8, 3, activation="relu"), L.MaxPooling2D(), L.Conv2D(16, 3, activation="relu"),
                            L.MaxPooling2D(), L.Conv2D(32, 3, activation="relu"), L.GlobalAveragePooling2D(), L.Dense(5)])
    convolutions = [layer for layer in net.layers if "conv" in layer.name]

    def one_by_one():
        maps = []
        for photo in photos:
            for layer in convolutions:
                viewer = keras.Model(net.inputs, layer.output)
                maps.append(viewer.predict(photo[None], verbose=0)[0].mean())
        return maps

    def together():
        viewer = keras.Model(net.inputs, [layer.output for layer in convolutions])
        return [m.mean() for maps in viewer.predict(photos, verbose=0) for m in maps]
    return one_by_one, together


@case("own-code-in-step")
def tenants_by_experts_called_one_after_another():
    """Mixture of experts as a custom layer: call() goes over 20 small Dense layers in Python, stacks and weighs them.

    Right: the experts' loop in call (tracing of it, and its many small ops in each step). Changed: one kernel for all experts, by einsum.
    """
    import keras, numpy as np
    L, ops = keras.layers, keras.ops
    rng = np.random.default_rng(602)
    x, y = rng.random((4800, 20), np.float32), rng.random((4800, 1), np.float32)

    class Mixture(L.Layer):
        def __init__(self, count, units):
            super().__init__()
            self.gate = L.Dense(count, activation="softmax")
            self.experts = [L.Dense(units, activation="relu") for _ in range(count)]

        def call(self, t):
            weights = self.gate(t)
            outs = []
            for i, expert in enumerate(self.experts):
                outs.append(expert(t) * weights[:, i:i + 1])
            return ops.sum(ops.stack(outs, axis=1), axis=1)

    class MixtureAtOnce(L.Layer):
        def __init__(self, count, units):
            super().__init__()
            self.count, self.units, self.gate = count, units, L.Dense(count, activation="softmax")

        def build(self, shape):
            self.kernel = self.add_weight(shape=(shape[-1], self.count, self.units), initializer="glorot_uniform")
            self.bias = self.add_weight(shape=(self.count, self.units), initializer="zeros")

        def call(self, t):
            h = ops.relu(ops.einsum("bi,iek->bek", t, self.kernel) + self.bias)
            return ops.sum(h * self.gate(t)[:, :, None], axis=1)

    def run(layer):
        net = keras.Sequential([keras.Input((20,)), layer(20, 16), L.Dense(1)])
        net.compile("adam", "mse")
        net.fit(x, y, batch_size=32, epochs=3, verbose=0)
    return (lambda: run(Mixture)), (lambda: run(MixtureAtOnce))


@case("input-bound")
def clicks_unbatched_to_be_batched_again():
    """A dataset that comes in batches is unbatched, shuffled row by row and batched anew (so that it is shuffled well).

    Right: the input, of which unbatch (and row-wise shuffle) takes the time. Changed: shuffled by one permutation of rows, gathered batch by batch.
    """
    import keras, numpy as np, tensorflow as tf
    L = keras.layers
    rng = np.random.default_rng(603)
    n = 60000
    table = {"user": rng.random((n, 8), np.float32), "item": rng.random((n, 8), np.float32), "hour": rng.random((n, 1), np.float32)}
    clicked = rng.integers(0, 2, (n, 1)).astype("float32")
    tensors, labels = {k: tf.constant(v) for k, v in table.items()}, tf.constant(clicked)
    inputs = {k: keras.Input((v.shape[1],), name=k) for k, v in table.items()}
    h = L.Dense(32, activation="relu")(L.Concatenate()(list(inputs.values())))
    net = keras.Model(inputs, L.Dense(1)(h))
    net.compile("adam", keras.losses.BinaryCrossentropy(from_logits=True))
    arriving = tf.data.Dataset.from_tensor_slices((tensors, labels)).batch(1000)
    again = arriving.unbatch().shuffle(10000).batch(256).prefetch(tf.data.AUTOTUNE)
    at_once = (tf.data.Dataset.range(1).flat_map(lambda _: tf.data.Dataset.from_tensor_slices(tf.random.shuffle(tf.range(n)))
               .batch(256)).map(lambda i: ({k: tf.gather(v, i) for k, v in tensors.items()}, tf.gather(labels, i))).prefetch(tf.data.AUTOTUNE))
    return (lambda: net.fit(again, epochs=6, verbose=0)), (lambda: net.fit(at_once, epochs=6, verbose=0))


@case("own-python")
def quotes_by_a_model_loaded_for_each_request():
    """A web handler: keras.models.load_model(path) and predict for each request that comes in.

    Right: load_model in each request (and the trace of predict that a new model needs). Changed: loaded once.
    """
    import keras, numpy as np
    L = keras.layers
    rng = np.random.default_rng(604)
    path = tempfile.mkdtemp() + "/quotes.keras"
    net = keras.Sequential([keras.Input((30,))] + [b for _ in range(8) for b in (L.Dense(64), L.BatchNormalization(), L.Activation("relu"))] + [L.Dense(1)])
    net.save(path)
    requests = rng.random((9, 1, 30), np.float32)

    def handle(request):
        model = keras.models.load_model(path)
        return float(model.predict(request, verbose=0)[0, 0])

    def serve():
        return [handle(r) for r in requests]

    def serve_loaded():
        model = keras.models.load_model(path)
        return [float(model.predict(r, verbose=0)[0, 0]) for r in requests]
    return serve, serve_loaded


@case("while-loop")
def gestures_matched_by_map_fn_in_the_loss():
    """A custom loss (Chamfer distance of two curves) written for one example and mapped over the batch by tf.map_fn.

    Right: the map_fn (a while loop over the batch) in the loss, and in its gradient. Changed: the same with a batch axis.
    """
    import keras, numpy as np, tensorflow as tf
    L = keras.layers
    rng = np.random.default_rng(605)
    x, y = rng.random((3200, 40), np.float32), rng.random((3200, 16, 2), np.float32)

    def chamfer_of_one(pair):
        a, b = pair
        d = tf.reduce_sum((a[:, None] - b[None]) ** 2, -1)
        return tf.reduce_mean(tf.reduce_min(d, 0)) + tf.reduce_mean(tf.reduce_min(d, 1))

    def chamfer(true, guess):
        return tf.reduce_mean(tf.map_fn(chamfer_of_one, (true, guess), fn_output_signature=tf.float32))

    def chamfer_at_once(true, guess):
        d = tf.reduce_sum((true[:, :, None] - guess[:, None]) ** 2, -1)
        return tf.reduce_mean(tf.reduce_min(d, 1)) + tf.reduce_mean(tf.reduce_min(d, 2))

    def run(loss):
        net = keras.Sequential([keras.Input((40,)), L.Dense(128, activation="relu"), L.Dense(32), L.Reshape((16, 2))])
        net.compile("adam", loss, jit_compile=False)
        net.fit(x, y, batch_size=64, epochs=5, verbose=0)
    return (lambda: run(chamfer)), (lambda: run(chamfer_at_once))


@case("callbacks")
def losses_of_batches_in_a_growing_pandas_log():
    """A callback that concatenates a row to a DataFrame after each batch and writes the whole log as CSV.

    Right: on_train_batch_end of the callback. Changed: rows in a list, one DataFrame written at the end of each epoch.
    """
    import keras, numpy as np, pandas as pd
    L = keras.layers
    rng = np.random.default_rng(606)
    x, y = rng.random((8000, 24), np.float32), rng.integers(0, 4, 8000)
    path = tempfile.mkdtemp() + "/log.csv"

    class PandasLog(keras.callbacks.Callback):
        def on_train_begin(self, logs=None):
            self.frame, self.epoch = pd.DataFrame(columns=["epoch", "batch", "loss"]), 0

        def on_epoch_begin(self, epoch, logs=None):
            self.epoch = epoch

        def on_train_batch_end(self, batch, logs=None):
            row = pd.DataFrame([{"epoch": self.epoch, "batch": batch, "loss": logs["loss"]}])
            self.frame = pd.concat([self.frame, row], ignore_index=True)
            self.frame.to_csv(path, index=False)

    class ListLog(keras.callbacks.Callback):
        def on_train_begin(self, logs=None):
            self.rows, self.epoch = [], 0

        def on_epoch_begin(self, epoch, logs=None):
            self.epoch = epoch

        def on_train_batch_end(self, batch, logs=None):
            self.rows.append({"epoch": self.epoch, "batch": batch, "loss": logs["loss"]})

        def on_epoch_end(self, epoch, logs=None):
            pd.DataFrame(self.rows).to_csv(path, index=False)

    def run(log):
        net = keras.Sequential([keras.Input((24,)), L.Dense(64, activation="relu"), L.Dense(64, activation="relu"), L.Dense(4)])
        net.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        net.fit(x, y, batch_size=64, epochs=3, verbose=0, callbacks=[log()])
    return (lambda: run(PandasLog)), (lambda: run(ListLog))


@case("tracing")
def tremors_by_an_unrolled_gru():
    """GRU(unroll=True) over 30 time steps, "for the documentation says it is faster": the step is traced for each time step.

    Right: tracing (first step), for unroll=True writes out 30 steps of the layer. Changed: unroll=False.
    """
    import keras, numpy as np
    L = keras.layers
    rng = np.random.default_rng(607)
    x, y = rng.random((1280, 30, 6), np.float32), rng.integers(0, 2, (1280, 1)).astype("float32")

    def run(unroll):
        net = keras.Sequential([keras.Input((30, 6)), L.GRU(24, return_sequences=True, unroll=unroll), L.GRU(24, unroll=unroll), L.Dense(1, activation="sigmoid")])
        net.compile("adam", "binary_crossentropy")
        net.fit(x, y, batch_size=64, epochs=2, verbose=0)
    return (lambda: run(True)), (lambda: run(False))


@case("")
def columns_permuted_to_see_what_matters():
    """Permutation importance: for each of 16 columns, predict of all rows with the column shuffled, in large batches.

    Healthy: matrix products of a wide net; 16 predicts are what it takes. Changed: a compiled call instead of predict.
    """
    import keras, numpy as np, tensorflow as tf
    L = keras.layers
    rng = np.random.default_rng(608)
    x, y = rng.random((12000, 16), np.float32), rng.integers(0, 2, 12000)
    net = keras.Sequential([keras.Input((16,)), L.Dense(768, activation="relu"), L.Dense(768, activation="relu"), L.Dense(768, activation="relu"), L.Dense(1)])
    compiled = tf.function(lambda t: net(t, training=False))

    def importance(ask):
        base, drops = np.mean((ask(x)[:, 0] > 0) == y), []
        for column in range(x.shape[1]):
            shuffled = x.copy()
            shuffled[:, column] = rng.permutation(shuffled[:, column])
            drops.append(base - np.mean((ask(shuffled)[:, 0] > 0) == y))
        return drops

    def in_batches(a):
        return np.concatenate([compiled(tf.constant(a[i:i + 1000])).numpy() for i in range(0, len(a), 1000)])
    return (lambda: importance(lambda a: net.predict(a, batch_size=1000, verbose=0))), (lambda: importance(in_batches))


@case("")
def captchas_read_with_ctc():
    """The Keras example that reads captchas: convolutions, two bidirectional LSTMs, CTC loss; images decoded once (cache), batched and prefetched.

    Healthy: convolutions and LSTMs. Changed: the images as one array in memory.
    """
    import keras, numpy as np, tensorflow as tf
    L = keras.layers
    rng = np.random.default_rng(609)
    images, letters = rng.random((256, 100, 32, 1), np.float32), rng.integers(1, 20, (256, 5))
    pngs = tf.constant([tf.io.encode_png((im * 255).astype("uint8")).numpy() for im in images])

    def decoded(png, text):
        return tf.ensure_shape(tf.image.convert_image_dtype(tf.io.decode_png(png, 1), tf.float32), (100, 32, 1)), text
    ds = tf.data.Dataset.from_tensor_slices((pngs, letters)).map(decoded, num_parallel_calls=tf.data.AUTOTUNE).cache().batch(16).prefetch(tf.data.AUTOTUNE)

    def ctc(true, guess):
        lengths = keras.ops.full((keras.ops.shape(guess)[0],), guess.shape[1], "int32")
        return keras.ops.ctc_loss(keras.ops.cast(true, "int32"), guess, keras.ops.full_like(lengths, 5), lengths)

    def run(*data, **how):
        inp = keras.Input((100, 32, 1))
        h = L.MaxPooling2D(2)(L.Conv2D(32, 3, activation="relu", padding="same")(inp))
        h = L.MaxPooling2D(2)(L.Conv2D(64, 3, activation="relu", padding="same")(h))
        h = L.Dense(64, activation="relu")(L.Reshape((25, 8 * 64))(h))
        h = L.Bidirectional(L.LSTM(64, return_sequences=True))(h)
        h = L.Bidirectional(L.LSTM(32, return_sequences=True))(h)
        net = keras.Model(inp, L.Dense(21)(h))
        net.compile("adam", ctc, jit_compile=False)
        net.fit(*data, epochs=4, verbose=0, **how)
    return (lambda: run(ds)), (lambda: run(images, letters, batch_size=16))


@case("")
def fields_by_an_atrous_pyramid():
    """DeepLab of satellite fields: dilated convolutions side by side, mean IoU as a metric, batches cut by a keras.utils.PyDataset.

    Healthy: the PyDataset only slices. Changed: tf.data instead.
    """
    import keras, numpy as np, tensorflow as tf
    L = keras.layers
    rng = np.random.default_rng(610)
    images, masks = rng.random((64, 64, 64, 4), np.float32), rng.integers(0, 3, (64, 64, 64))

    class Fields(keras.utils.PyDataset):
        def __len__(self):
            return 8

        def __getitem__(self, i):
            return images[i * 8:i * 8 + 8], masks[i * 8:i * 8 + 8]

    def run(data):
        inp = keras.Input((64, 64, 4))
        h = L.Conv2D(32, 3, padding="same", activation="relu")(inp)
        h = L.Concatenate()([L.Conv2D(24, 3, padding="same", dilation_rate=r, activation="relu")(h) for r in (1, 3, 6, 9)])
        h = L.Conv2D(48, 3, padding="same", activation="relu")(L.BatchNormalization()(h))
        net = keras.Model(inp, L.Conv2D(3, 1)(h))
        net.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=[keras.metrics.MeanIoU(3, sparse_y_pred=False)])
        net.fit(data, epochs=2, verbose=0)
    return (lambda: run(Fields())), (lambda: run(tf.data.Dataset.from_tensor_slices((images, masks)).batch(8).prefetch(2)))


@case("")
def learning_rates_tried_on_one_model():
    """Four learning rates, one compiled model: weights set back, optimizer.learning_rate assigned, so that nothing is traced again.

    Healthy: a wide net in large batches. Changed: steps_per_execution=8.
    """
    import keras, numpy as np
    L = keras.layers
    rng = np.random.default_rng(611)
    x, y = rng.random((6144, 128), np.float32), rng.random((6144, 1), np.float32)

    def run(**more):
        net = keras.Sequential([keras.Input((128,)), L.Dense(1024, activation="relu"), L.Dense(1024, activation="relu"), L.Dropout(0.2), L.Dense(1)])
        net.compile(keras.optimizers.SGD(0.1, momentum=0.9), "mse", **more)
        start, found = net.get_weights(), {}
        for rate in (0.1, 0.01, 0.001, 0.0001):
            net.set_weights(start)
            net.optimizer.learning_rate.assign(rate)
            found[rate] = net.fit(x, y, batch_size=256, epochs=2, validation_split=0.1, verbose=0).history["val_loss"][-1]
        return min(found, key=found.get)
    return (lambda: run()), (lambda: run(steps_per_execution=8))


@of("torch", "own-python")
def torch_sensitivities_by_a_jacobian_of_each_row():
    """How outputs answer to inputs: torch.autograd.functional.jacobian called row by row.

    Right: the jacobian of each row in Python. Changed: one batched jacobian (sum over the batch: rows do not touch each other).
    """
    import torch
    from torch import nn
    from torch.autograd.functional import jacobian
    torch_ready(612)
    net = nn.Sequential(nn.Linear(12, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 6))
    rows = torch.rand(2500, 12)

    def each():
        found = []
        for row in rows:
            found.append(jacobian(net, row))
        return torch.stack(found).abs().mean(0)

    def at_once():
        return jacobian(lambda a: net(a).sum(0), rows).permute(1, 0, 2).abs().mean(0)
    return each, at_once


@of("torch", "own-python")
def torch_songs_masked_in_a_double_loop():
    """A small decoder whose forward writes its causal mask with two Python loops for each batch.

    Right: the mask's loops (each element an op of its own). Changed: torch.triu, once.
    """
    import torch
    from torch import nn
    torch_ready(613)
    notes = torch.randint(0, 50, (320, 65))

    class Decoder(nn.Module):
        def __init__(self, loops):
            super().__init__()
            self.loops, self.embed, self.head = loops, nn.Embedding(50, 32), nn.Linear(32, 50)
            self.attend, self.norm = nn.MultiheadAttention(32, 4, batch_first=True), nn.LayerNorm(32)

        def causal(self, size):
            if not self.loops:
                return torch.triu(torch.full((size, size), float("-inf")), 1)
            mask = torch.zeros(size, size)
            for i in range(size):
                for j in range(size):
                    if j > i:
                        mask[i, j] = float("-inf")
            return mask

        def forward(self, ids):
            h = self.embed(ids)
            mask = self.causal(ids.shape[1])
            return self.head(self.norm(h + self.attend(h, h, h, attn_mask=mask, need_weights=False)[0]))

    def train(loops):
        net = Decoder(loops)
        opt = torch.optim.Adam(net.parameters(), 1e-3)
        for epoch in range(4):
            for batch in notes.split(4):
                loss = nn.functional.cross_entropy(net(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
                opt.zero_grad()
                loss.backward()
                opt.step()
    return (lambda: train(True)), (lambda: train(False))


@of("torch", "own-python")
def torch_best_weights_copied_in_each_step():
    """copy.deepcopy(model.state_dict()) whenever the running loss is the best so far, which it nearly always is at first.

    Right: the deepcopy in each step. Changed: compared and copied once an epoch.
    """
    import torch
    from torch import nn
    torch_ready(614)
    words = torch.randint(0, 400, (6400, 20))
    kinds = (words.float().mean(1) > 200).long()

    def train(every_step):
        net = nn.Sequential(nn.EmbeddingBag(60000, 96, sparse=True), nn.Linear(96, 64), nn.ReLU(), nn.Linear(64, 2))
        opt = torch.optim.SGD(net.parameters(), 0.5)
        best, kept, mean = float("inf"), None, None
        for epoch in range(4):
            for w, k in zip(words.split(32), kinds.split(32)):
                loss = nn.functional.cross_entropy(net(w), k)
                opt.zero_grad()
                loss.backward()
                opt.step()
                mean = loss.item() if mean is None else 0.99 * mean + 0.01 * loss.item()
                if every_step and mean < best:
                    best, kept = mean, copy.deepcopy(net.state_dict())
            if not every_step and mean < best:
                best, kept = mean, copy.deepcopy(net.state_dict())
        return best
    return (lambda: train(True)), (lambda: train(False))


@of("torch", "")
def torch_particles_by_a_normalizing_flow():
    """RealNVP: eight coupling layers on batches of 2048 points, gradient clipping, a cosine schedule, loss.item() each step.

    Healthy: matrix products. Changed: no loss.item(), no clipping norm read.
    """
    import torch
    from torch import nn
    torch_ready(615)
    points = torch.randn(16384, 16)

    class Coupling(nn.Module):
        def __init__(self, flip):
            super().__init__()
            self.flip, self.net = flip, nn.Sequential(nn.Linear(8, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 16))

        def forward(self, x):
            a, b = x.chunk(2, 1)
            if self.flip:
                a, b = b, a
            s, t = self.net(a).chunk(2, 1)
            s = torch.tanh(s)
            b = b * torch.exp(s) + t
            return torch.cat([b, a] if self.flip else [a, b], 1), s.sum(1)

    def train(read):
        flow = nn.ModuleList(Coupling(i % 2) for i in range(8))
        opt = torch.optim.Adam(flow.parameters(), 1e-4)
        rate = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 64)
        losses = []
        for epoch in range(4):
            for x in points[torch.randperm(len(points))].split(2048):
                volume = 0.0
                for layer in flow:
                    x, v = layer(x)
                    volume = volume + v
                loss = (0.5 * (x ** 2).sum(1) - volume).mean()
                opt.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(flow.parameters(), 1.0)
                opt.step()
                rate.step()
                losses.append(loss.item() if read else loss.detach())
        return float(losses[-1])
    return (lambda: train(True)), (lambda: train(False))


@of("torch", "")
def torch_yields_cross_validated_in_five_folds():
    """Five folds, a new wide net for each, batches of index tensors, validation under no_grad.

    Healthy: matrix products; a net for each fold is what it takes. Changed: TensorDataset and DataLoader with two workers.
    """
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset
    torch_ready(616)
    x, y = torch.rand(5000, 64), torch.rand(5000, 1)

    def validate(loader):
        scores = []
        for fold in torch.randperm(5000).chunk(5):
            kept = torch.ones(5000, dtype=torch.bool)
            kept[fold] = False
            net = nn.Sequential(nn.Linear(64, 768), nn.ReLU(), nn.Linear(768, 768), nn.ReLU(), nn.Dropout(0.1), nn.Linear(768, 1))
            opt = torch.optim.AdamW(net.parameters(), 1e-3)
            xt, yt = x[kept], y[kept]
            for epoch in range(3):
                batches = loader(xt, yt) if loader else ((xt[i], yt[i]) for i in torch.randperm(len(xt)).split(250))
                for xb, yb in batches:
                    loss = nn.functional.mse_loss(net(xb), yb)
                    opt.zero_grad()
                    loss.backward()
                    opt.step()
            with torch.no_grad():
                scores.append(nn.functional.mse_loss(net(x[fold]), y[fold]).item())
        return sum(scores) / 5
    return (lambda: validate(None)), (lambda: validate(lambda a, b: DataLoader(TensorDataset(a, b), 250, shuffle=True, num_workers=2)))


@of("jax", "eager-ops")
def jax_wind_with_adam_outside_of_jit():
    """value_and_grad is jitted; Adam's update is written with jax.tree.map and runs op by op for each array.

    Right: the update, eager ops outside jit. Changed: loss, gradient and update in one jit.
    """
    import jax, jax.numpy as jnp, numpy as np
    rng = np.random.default_rng(617)
    x, y = jnp.asarray(rng.random((64, 16), np.float32)), jnp.asarray(rng.random((64, 1), np.float32))
    sizes = (16, 48, 48, 48, 48, 1)
    start = [{"w": jnp.asarray(rng.normal(0, 0.2, s).astype("float32")), "b": jnp.zeros(s[1])} for s in zip(sizes, sizes[1:])]

    def loss(params, a, b):
        for p in params[:-1]:
            a = jnp.tanh(a @ p["w"] + p["b"])
        return jnp.mean((a @ params[-1]["w"] + params[-1]["b"] - b) ** 2)
    graded = jax.jit(jax.value_and_grad(loss))

    def adam(params, m, v, grads, t):
        m = jax.tree.map(lambda a, g: 0.9 * a + 0.1 * g, m, grads)
        v = jax.tree.map(lambda a, g: 0.999 * a + 0.001 * g ** 2, v, grads)
        params = jax.tree.map(lambda p, a, b: p - 1e-3 * (a / (1 - 0.9 ** t)) / (jnp.sqrt(b / (1 - 0.999 ** t)) + 1e-8), params, m, v)
        return params, m, v

    @jax.jit
    def step(params, m, v, a, b, t):
        value, grads = jax.value_and_grad(loss)(params, a, b)
        return *adam(params, m, v, grads, t), value

    def run(one):
        params, m, v = start, jax.tree.map(jnp.zeros_like, start), jax.tree.map(jnp.zeros_like, start)
        for t in range(1, 401):
            if one:
                params, m, v, value = step(params, m, v, x, y, t)
            else:
                value, grads = graded(params, x, y)
                params, m, v = adam(params, m, v, grads, t)
        return float(value)
    return (lambda: run(False)), (lambda: run(True))


@of("jax", "retracing")
def jax_categories_with_a_static_temperature():
    """Gumbel-softmax whose temperature falls each epoch and is passed by static_argnames: compiled anew for each value.

    Right: compilations, one for each temperature (a static argument that changes). Changed: passed as an array.
    """
    import functools
    import jax, jax.numpy as jnp, numpy as np
    rng = np.random.default_rng(618)
    x = jnp.asarray(rng.random((128, 64), np.float32))
    start = {k: jnp.asarray(rng.normal(0, 0.1, s).astype("float32")) for k, s in {"a": (64, 96), "b": (96, 160), "c": (160, 96), "d": (96, 64)}.items()}

    def loss(p, x, key, temperature):
        logits = (jnp.tanh(x @ p["a"]) @ p["b"]).reshape(-1, 10, 16)
        z = jax.nn.softmax((logits + jax.random.gumbel(key, logits.shape)) / temperature)
        back = jax.nn.sigmoid(jnp.tanh(z.reshape(-1, 160) @ p["c"]) @ p["d"])
        q = jax.nn.softmax(logits)
        return jnp.mean((back - x) ** 2) + 1e-3 * jnp.mean(jnp.sum(q * jnp.log(q * 16 + 1e-9), -1))

    def update(p, x, key, temperature):
        value, g = jax.value_and_grad(loss)(p, x, key, temperature)
        return jax.tree.map(lambda a, b: a - 0.1 * b, p, g), value

    def run(static):
        step = functools.partial(jax.jit, static_argnames="temperature")(update) if static else jax.jit(update)
        p, key = start, jax.random.key(0)
        for epoch in range(12):
            temperature = max(0.3, 1.0 * 0.92 ** epoch)
            for _ in range(20):
                key, sub = jax.random.split(key)
                p, value = step(p, x, sub, temperature=temperature)
        return float(value)
    return (lambda: run(True)), (lambda: run(False))


@of("jax", "")
def jax_melodies_by_a_scanned_lstm():
    """An LSTM by lax.scan inside one jitted step with its update; keys split outside; the loss read each epoch.

    Healthy: the recurrence. Changed: donate_argnums and no reading of the loss.
    """
    import jax, jax.numpy as jnp, numpy as np
    rng = np.random.default_rng(619)
    notes = jnp.asarray(rng.integers(0, 60, (64, 97)))
    H = 192

    def fresh():
        r = np.random.default_rng(1)
        return {k: jnp.asarray(r.normal(0, 0.08, s).astype("float32")) for k, s in {"e": (60, H), "w": (2 * H, 4 * H), "o": (H, 60)}.items()}

    def loss(p, ids):
        def cell(state, x):
            h, c = state
            i, f, g, o = jnp.split(jnp.concatenate([x, h], 1) @ p["w"], 4, 1)
            c = jax.nn.sigmoid(f + 1) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h
        zero = jnp.zeros((ids.shape[0], H))
        _, hs = jax.lax.scan(cell, (zero, zero), p["e"][ids[:, :-1]].swapaxes(0, 1))
        logp = jax.nn.log_softmax(hs @ p["o"])
        return -jnp.mean(jnp.take_along_axis(logp, ids[:, 1:].T[..., None], -1))

    def update(p, ids):
        value, g = jax.value_and_grad(loss)(p, ids)
        return jax.tree.map(lambda a, b: a - 0.5 * b, p, g), value

    def run(read, **how):
        step, p = jax.jit(update, **how), fresh()
        for epoch in range(6):
            for _ in range(4):
                p, value = step(p, notes)
            if read:
                float(value)
        return float(value)
    return (lambda: run(True)), (lambda: run(False, donate_argnums=0))


@of("torch", "")
def torch_backend_leaves_by_separable_convolutions():
    """Keras on PyTorch: separable convolutions, batches from arrays, accuracy as a metric, early stopping.

    Healthy: convolutions. Changed: a torch DataLoader over the same tensors.
    """
    import keras, numpy as np, torch
    L = keras.layers
    rng = np.random.default_rng(620)
    x, y = rng.random((384, 64, 64, 3), np.float32), rng.integers(0, 6, 384)

    def run(*data, **how):
        net = keras.Sequential([keras.Input((64, 64, 3)), L.Conv2D(32, 3, activation="relu"), L.SeparableConv2D(64, 3, activation="relu"), L.MaxPooling2D(),
                                L.SeparableConv2D(96, 3, activation="relu"), L.GlobalAveragePooling2D(), L.Dense(6)])
        net.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
        net.fit(*data, epochs=2, verbose=0, callbacks=[keras.callbacks.EarlyStopping("loss", patience=2)], **how)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.from_numpy(x), torch.from_numpy(y)), batch_size=32, shuffle=True)
    return (lambda: run(x, y, batch_size=32)), (lambda: run(loader))
