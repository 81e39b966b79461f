"""Programs as text, with stand-ins for the libraries' objects: an edit asks only for the classes' names."""

import ast
import types

import numpy as np

from profnb.advice.proposals import Advice
from profnb.edits.editing import find_edits

TF, KERAS = types.ModuleType("tensorflow"), types.ModuleType("keras")
TORCH, JAX, JNP = types.ModuleType("torch"), types.ModuleType("jax"), types.ModuleType("jax.numpy")


def stand_in(module, name, **attributes):
    """An object of a class that is called so, and stands in a module that is called so."""
    base = type("Layer", (), {"__module__": "keras.src.layers.layer"}) if module.startswith("keras") and name != "Loss" else object
    return type(name, (base,), {"__module__": module, **attributes})()


def model(**attributes):
    return stand_in("keras.src.models.model", "Model", **{"outputs": [1], "layers": [], **attributes})


def dataset():
    return stand_in("tensorflow.python.data.ops.dataset_ops", "DatasetV2")


def names_of(*sources, **more):
    """The names of a cell that ran: modules, a model, data, and the functions that its sources define."""
    names = {
        "__name__": "__main__", "tf": TF, "keras": KERAS, "np": np, "torch": TORCH, "jax": JAX, "jnp": JNP, "model": model(), "ds": dataset(), "val": dataset(),
        "x": np.zeros((100, 4), np.float32), "y": np.zeros((100, 1), np.float32), "files": ["a", "b"],
        "optimizer": stand_in("keras.src.optimizers.sgd", "SGD"), "loss_fn": stand_in("keras.src.losses.loss", "Loss"),
        "net": stand_in("torch.nn.modules.module", "Module"),
        "DataLoader": type("DataLoader", (), {"__module__": "torch.utils.data.dataloader"}),
    }  # fmt: skip
    for source in sources:
        try:
            tree = ast.parse(source)
        except (SyntaxError, ValueError, MemoryError):
            continue
        functions = [node for node in tree.body if isinstance(node, ast.FunctionDef) and not node.decorator_list]
        exec(compile(ast.Module(functions, []), "<cell>", "exec"), names)
    return names | more


def advice(rule, code, where="", edit=None):
    return Advice(rule, "", "", (0.0, 1.0), 1.0, code, "", where, (), edit)


def edit_of(rule, code, *sources, where="", edit=None, **names):
    """The edit of a piece of advice, or None; the sources are called cell.py, cell1.py ..."""
    named = {f"cell{at or ''}.py": source for at, source in enumerate(sources)}
    edits = find_edits([advice(rule, code, where, edit)], named, names_of(*sources, **names))
    return edits[0] if edits else None


def changed_lines(edit):
    """The lines of a diff that go and that come."""
    return [line for line in edit.diff.splitlines() if line[:1] in "+-" and line[:3] not in ("+++", "---")]
