"""Small Keras models that are shipped to a device: a CNN, a dense one, an LSTM, a block as of MobileNet."""

import numpy as np


def make_data(count, seed=0):
    """Images of noise with a faint bright quarter, and which quarter it is."""
    random = np.random.default_rng(seed)
    y = random.integers(0, 4, count)
    x = random.normal(0, 1, (count, 32, 32, 3)).astype(np.float32)
    for row, label in enumerate(y):
        x[row, 8 * label : 8 * label + 8] += 0.09
    return x, y


def make_model(name, width=1):
    """A model of this name; ``width`` makes it larger."""
    import keras
    from keras import layers

    keras.utils.set_random_seed(1)
    feed = keras.Input((32, 32, 3))
    out = {"cnn": _cnn, "dense": _dense, "lstm": _lstm, "mobile": _mobile}[name](layers, feed, width)
    return keras.Model(feed, out, name=name)


def train(model, x, y, epochs=2):
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    model.fit(x, y, epochs=epochs, batch_size=32, verbose=0)


def _cnn(layers, h, width):
    h = layers.Conv2D(8 * width, 3, activation="relu")(h)
    h = layers.Conv2D(8 * width, 3, activation="relu")(h)
    h = layers.MaxPooling2D()(h)
    h = layers.Conv2D(8 * width, 3, activation="relu")(h)
    h = layers.Flatten()(h)
    h = layers.Dense(32 * width, activation="relu")(h)
    return layers.Dense(4, activation="softmax")(h)


def _dense(layers, h, width):
    h = layers.Flatten()(h)
    h = layers.Dense(128 * width, activation="relu")(h)
    h = layers.Dense(64 * width, activation="relu")(h)
    return layers.Dense(4, activation="softmax")(h)


def _lstm(layers, h, width):
    h = layers.Reshape((32, 96))(h)
    h = layers.LSTM(16 * width)(h)
    return layers.Dense(4, activation="softmax")(h)


def _mobile(layers, h, width):
    def normed(h):
        return layers.ReLU(6.0)(layers.BatchNormalization()(h))

    h = before = normed(layers.Conv2D(8 * width, 3, strides=2, padding="same", use_bias=False)(h))
    h = normed(layers.Conv2D(24 * width, 1, use_bias=False)(h))
    h = normed(layers.DepthwiseConv2D(3, padding="same", use_bias=False)(h))
    h = layers.BatchNormalization()(layers.Conv2D(8 * width, 1, use_bias=False)(h))
    h = layers.Flatten()(layers.AveragePooling2D(4)(layers.Add()([h, before])))  # rows stay apart: which of them is bright is asked
    return layers.Dense(4, activation="softmax")(h)
