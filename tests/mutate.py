"""Do the tests notice when the code is wrong? A sample of small mistakes, made one at a time in a copy.

    python tests/mutate.py --out /tmp/mutants.jsonl           # the sample: the same mutants each time
    python tests/mutate.py --out /tmp/mutants.jsonl --retry   # those that survived, with the tests of today
    python tests/mutate.py --out /tmp/mutants.jsonl --table   # what was found so far

A mutant changes one place of one module: an operator, a comparison and its boundary, a constant, a
condition that always or never holds, a statement left out, two arguments swapped, ``min`` for ``max``. The
test files that stand beside its name in ``SUBJECTS`` run against it and stop at the first failure: it is
killed, or it survives and is printed. Which mutants are drawn hangs on the seed and the module's text alone.

A run that was stopped goes on where it was: each mutant is a line of the results file. A survivor that a
reader finds to be equivalent (nothing that anybody can see differs) gets ``"judged": "equivalent"`` in its
line, by hand; it then counts neither as killed nor as a hole.

The kernels of a mutant are compiled like those of the package, as what Numba does (no bounds checks, -1 as
an index) is part of what is tested; the cache that comes with the copy makes that quick. Tests that need
TensorFlow, a Jupyter kernel or a browser are left out, and those of ``LEFT_OUT``; the figures are lower bounds.
This is no part of the gate: 150 mutants take half an hour.
"""

import argparse
import ast
import collections
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
SUBJECTS = {
    "profnb.steps.grouping": "test_breakdown test_launches test_loops test_torch_ahead",
    "profnb.steps.windows": "test_steps test_summary test_gaps",
    "profnb.steps.finding.calls": "test_steps",
    "profnb.steps.nesting": "test_nesting test_breakdown",
    "profnb.steps.breakdown": "test_breakdown test_launches test_loops test_gaps test_idle",
    "profnb.steps.summary": "test_summary test_gaps test_headings test_idle",
    "profnb.subjects.ops.op_table": "test_ops test_xla test_as_data test_docs",
    "profnb.subjects.device.idle": "test_idle test_lead test_docs",
    "profnb.subjects.device.devices": "test_kernels test_launches test_docs",
    "profnb.subjects.device.kernels": "test_kernels test_chrome_hardening test_launches test_docs",
    "profnb.subjects.xla.hlo_program": "test_hlo test_xla",
    "profnb.subjects.input.waiting": "test_input_pipeline",
    "profnb.subjects.memory.allocators": "test_memory test_chrome_write",
    "profnb.compare.estimates": "test_comparison test_repeats",
    "profnb.compare.speedup": "test_comparison test_repeats",
    "profnb.compare.quality": "test_quality test_table_command",
    "profnb.advice.rules.input_rules": "test_advice test_feeding test_input_pipeline",
    "profnb.subjects.input.diagnosis": "test_input_pipeline",
    "profnb.subjects.covered_time": "test_advice test_loops test_framework_advice test_around_ops",
    "profnb.causes.python_work": "test_around_ops test_lead",
    "profnb.advice.rules.python_rules": "test_loops test_advice",
    "profnb.trace.xplane": "test_xplane test_joining",
    "profnb.trace.chrome.events": "test_chrome test_chrome_hardening",
    "profnb.core.units": "test_units",
    "profnb.report.step_chart": "test_report test_gaps test_golden",
    "profnb.report.text": "test_report test_gaps test_gap_causes test_headings test_golden test_turn_times test_advice",
    "profnb.timeline.pack": "test_timeline test_timeline_view",
}
LEFT_OUT = "not interval_holds_the_truth and not one_run_each_speaks and not every_shared_trace and not test_links_lead"
path_of = lambda module: Path(*module.split(".")).with_suffix(".py")  # noqa: E731
OTHER_COMPARISONS = {
    ast.Lt: (ast.LtE, ast.GtE), ast.LtE: (ast.Lt, ast.Gt), ast.Gt: (ast.GtE, ast.LtE), ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.Is: (ast.IsNot,), ast.IsNot: (ast.Is,), ast.In: (ast.NotIn,), ast.NotIn: (ast.In,),
}  # fmt: skip
OTHER_OPERATORS = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.LShift: ast.RShift, ast.RShift: ast.LShift,
}  # fmt: skip
OTHER_NAMES = {"min": "max", "max": "min", "any": "all", "all": "any", "minimum": "maximum", "maximum": "minimum", "argmax": "argmin", "argmin": "argmax"}


def variants(node):
    """(kind, source text) of what a node may become."""
    match node:
        case ast.Compare(ops=[op]):
            for other in OTHER_COMPARISONS[type(op)]:
                yield "comparison", ast.Compare(node.left, [other()], node.comparators)
        case ast.BinOp() if type(node.op) in OTHER_OPERATORS:
            yield "operator", ast.BinOp(node.left, OTHER_OPERATORS[type(node.op)](), node.right)
        case ast.BoolOp():
            yield "operator", ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
        case ast.UnaryOp(op=ast.Not() | ast.USub() | ast.Invert()):
            yield "operator", node.operand
        case ast.Constant(value=bool()):
            yield "constant", ast.Constant(not node.value)
        case ast.Constant(value=int() | float()):
            yield "constant", ast.Constant(node.value + 1 if isinstance(node.value, int) else node.value * 2)
        case ast.Call(func=ast.Name(id=name)) if name in OTHER_NAMES:
            yield "min/max", ast.Call(ast.Name(OTHER_NAMES[name]), node.args, node.keywords)
        case ast.Call(func=ast.Attribute(attr=name)) if name in OTHER_NAMES:
            yield "min/max", ast.Call(ast.Attribute(node.func.value, OTHER_NAMES[name]), node.args, node.keywords)
        case ast.Call(args=[first, second, *rest]) if not any(isinstance(a, ast.Starred) for a in node.args):
            yield "arguments", ast.Call(node.func, [second, first, *rest], node.keywords)


def conditions(node):
    """What an ``if`` asks may always or never hold."""
    if isinstance(node, ast.If | ast.IfExp):
        yield from ((node.test, "condition", ast.Constant(value)) for value in (True, False))
    elif isinstance(node, ast.While):
        yield node.test, "condition", ast.Constant(False)
    elif isinstance(node, ast.comprehension):
        yield from ((test, "condition", ast.Constant(True)) for test in node.ifs)


def is_removable(node):
    """Whether a statement can be left out without a name going missing."""
    match node:
        case ast.Expr(value=ast.Constant()):
            return False  # a docstring
        case ast.Expr() | ast.AugAssign() | ast.Continue() | ast.Break() | ast.Raise():
            return True
        case ast.Assign(targets=[ast.Subscript() | ast.Attribute()]):
            return True
    return False


def skipped(tree):
    """Nodes that say nothing about behaviour: annotations, decorators, texts, what is exported, messages."""
    for node in ast.walk(tree):
        parts = []
        if isinstance(node, ast.FunctionDef):
            parts = [*node.decorator_list, node.returns, *(a.annotation for a in (*node.args.args, *node.args.kwonlyargs))]
        elif isinstance(node, ast.ClassDef):
            parts = node.decorator_list
        elif isinstance(node, ast.AnnAssign):
            parts = [node.annotation]
        elif isinstance(node, ast.JoinedStr | ast.Raise):  # the columns inside are wrong before Python 3.12
            parts = list(ast.iter_child_nodes(node))
        elif isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            parts = [node.value]
        for part in parts:
            if part is not None:
                yield from map(id, ast.walk(part))


def places(text):
    """Every mutant of a module: (line, begin, end, kind, new text); begin and end count bytes."""
    raw, tree = text.encode(), ast.parse(text)
    starts = [0]
    for line in raw.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    left_out = set(skipped(tree))
    for node in ast.walk(tree):
        if id(node) in left_out:
            continue
        made = [(node, kind, new) for kind, new in variants(node)] + list(conditions(node))
        if is_removable(node):
            made.append((node, "statement", None))
        for old, kind, new in made:
            begin, end = starts[old.lineno - 1] + old.col_offset, starts[old.end_lineno - 1] + old.end_col_offset
            fresh = "pass" if new is None else f"({ast.unparse(ast.fix_missing_locations(new))})"
            if id(old) not in left_out and fresh.strip("()") != raw[begin:end].decode():
                yield old.lineno, begin, end, kind, fresh


def draw(module, count, seed):
    text = (ROOT / path_of(module)).read_text("utf-8")
    every = list(places(text))
    raw = text.encode()
    for line, begin, end, kind, new in sorted(random.Random(f"{seed} {module}").sample(every, min(count, len(every)))):
        yield {"module": module, "line": line, "kind": kind, "begin": begin, "old": " ".join(raw[begin:end].decode().split()), "new": new}, end


def run_tests(folder, module, limit_s):
    """(whether they failed, the first test that did, seconds)."""
    files = [str(next((ROOT / "tests").rglob(f"{name}.py")).relative_to(ROOT)) for name in SUBJECTS[module].split()]
    command = [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", "--tb=no", "-rfE", "-m", "not tensorflow and not kernel and not browser", "-k", LEFT_OUT, *files]
    environment = {**os.environ, "PYTHONPATH": str(folder), "TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": "-1", "NUMBA_CACHE_DIR": ""}
    begin = time.monotonic()
    process = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)
    try:
        out, _ = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return True, "ran too long", time.monotonic() - begin
    failed = next((line.split()[1] for line in out.splitlines() if line.startswith(("FAILED", "ERROR"))), out[-200:])
    return process.returncode != 0, failed, time.monotonic() - begin


def try_mutant(mutant, end, work, limit_s):
    """Run the tests against a copy with one change."""
    copy = work / "mutant"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(work / "base", copy)
    path = copy / path_of(mutant["module"])
    raw = path.read_bytes()
    path.write_bytes(raw[: mutant["begin"]] + mutant["new"].encode() + raw[end:])
    killed, test, seconds = run_tests(copy, mutant["module"], limit_s)
    return {**mutant, "status": "killed" if killed else "survived", "test": test if killed else "", "seconds": round(seconds, 1)}


def key_of(row):
    return row["module"], row["begin"], row["kind"], row["new"]


def print_table(rows):
    counts = {}
    for row in rows:
        counts.setdefault(row["module"], collections.Counter())[row.get("judged") or row["status"]] += 1
    print(f"{'module':44} {'mutants':>7} {'killed':>7} {'equivalent':>10} {'survived':>8}")
    for module, found in [*counts.items(), ("all", sum(counts.values(), collections.Counter()))]:
        print(f"{module:44} {found.total():7} {found['killed']:7} {found['equivalent']:10} {found['survived']:8}")
    matter = found.total() - found["equivalent"]
    print(f"killed of those that are not equivalent: {found['killed']} of {matter} = {found['killed'] / max(matter, 1):.1%}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="the results, a JSON object a line")
    parser.add_argument("--seed", type=int, default=12)
    parser.add_argument("--each", type=int, default=7, help="mutants a module")
    parser.add_argument("--retry", action="store_true", help="run again what survived")
    parser.add_argument("--table", action="store_true", help="run nothing")
    parser.add_argument("modules", nargs="*", help="all of SUBJECTS by default")
    options = parser.parse_args()
    rows = {key_of(row): row for row in map(json.loads, options.out.read_text().splitlines())} if options.out.exists() else {}
    work = Path(tempfile.mkdtemp(prefix="mutants-"))
    try:
        if not options.table:
            (work / "base").mkdir()
            for name in ("profnb", "tests", "docs", "pyproject.toml", "README.md", "CONTRIBUTING.md"):
                (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, work / "base" / name)
            if (ROOT.parent / "shared").exists():
                (work / "shared").symlink_to((ROOT.parent / "shared").resolve())
        for module in [] if options.table else options.modules or SUBJECTS:
            wanted = [(m, end) for m, end in draw(module, options.each, options.seed)
                      if (found := rows.get(key_of(m))) is None or (options.retry and found["status"] == "survived" and not found.get("judged"))]  # fmt: skip
            if not wanted:
                continue
            failed, test, seconds = run_tests(work / "base", module, 900)  # it fills the cache as well
            if failed:
                sys.exit(f"{module}: its tests fail without a mutant: {test}")
            limit_s = 60 + 3 * seconds
            for mutant, end in wanted:
                rows[key_of(mutant)] = row = try_mutant(mutant, end, work, limit_s)
                options.out.write_text("".join(json.dumps(r) + "\n" for r in rows.values()))
                print(f"{row['status']:8} {module}:{row['line']}: {row['old'][:60]} -> {row['new'][:60]} {row['test'][:80]}", flush=True)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    print_table(rows.values())


if __name__ == "__main__":
    main()
