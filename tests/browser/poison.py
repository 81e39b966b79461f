"""Traces whose every name is an attack on the page that shows it.

A trace is written as Chrome JSON, every string in it is given a payload, and it is read again: names of events,
lines, planes and ops, and all texts in args. What stands beside a saved trace (layers, source, messages, ...)
is poisoned likewise, type by type.
"""

import gzip
import json

import profnb

SIGN = "profnb_was_here"
# What a payload does, should it run: set a name of the window, put an element on the page, ask the network.
RUN = f"window.{SIGN}=1"
PAYLOADS = {
    "script": f"<script>{RUN}</script>",
    "closed script": f"</script><script>{RUN}</script>",
    "closed style": f"</style><img src=x class={SIGN} onerror={RUN}>",
    "closed title": f"</title></textarea><img src=x class={SIGN} onerror={RUN}>",
    "image": f"<img src=http://{SIGN}.example/x.png class={SIGN} onerror={RUN}>",
    "svg": f"<svg class={SIGN} onload={RUN}><script>{RUN}</script></svg>",
    "math": f"<math><mtext><table><mglyph><style><img src=x class={SIGN} onerror={RUN}></style></mglyph></table></mtext></math>",
    "quote": f"\" onmouseover=\"{RUN}\" class=\"{SIGN}\" x=\"",
    "single quote": f"' onmouseover='{RUN}' class='{SIGN}' x='",
    "link": f"<a href=javascript:{RUN} class={SIGN}>go</a>",
    "pseudo link": f"<a href=\"http://{SIGN}.example/\" onmouseover={RUN}>x</a><sub>1</sub>",
    "frame": f"<iframe srcdoc='<script>parent.{SIGN}=1</script>' class={SIGN}></iframe>",
    "template": "{{" + f"constructor.constructor('{RUN}')()" + "}}${" + RUN + "}",
    "comment": f"--><script>{RUN}</script><!--",
    "json": f"\"}}]}}'>;{RUN}//\u2028\u2029\x00\x1b[31m",
    "meta": f"<meta http-equiv=refresh content='0;url=http://{SIGN}.example/'><base href=http://{SIGN}.example/>",
}
_OURS = ("ph", "cat", "ts", "dur", "tool", "side", "id", "bp", "s")


def poisoned(value, payload, place, key=""):
    """A JSON value with a payload in every string; ``place`` is "before", "after" or "instead"."""
    if isinstance(value, dict):
        return {k: poisoned(v, payload, place, k) for k, v in value.items()}
    if isinstance(value, list):
        return [poisoned(v, payload, place, key) for v in value]
    if not isinstance(value, str) or key in _OURS:
        return value
    return {"before": payload + value, "after": value + payload, "instead": payload}[place]


def poisoned_trace(trace, payload, place, folder):
    """A trace file with the payload in all its strings.

    Args:
        trace: A file.
        payload: One of ``PAYLOADS``.
        place: See ``poisoned``. What says what a thing is (``process_name``) and planes' prefixes stay.
        folder: Where to write it.
    """
    data = json.loads(profnb.load(trace).to_chrome_trace(folder / "clean.json").read_text("utf-8"))
    for event in data["traceEvents"]:
        if event["ph"] == "M":
            event["args"] = poisoned(event["args"], payload, "after" if place == "instead" else place)
        else:
            event.update(poisoned({k: event[k] for k in ("name", "args") if k in event}, payload, place))
    for key in ("op_names",):
        if key in data.get("otherData", {}):
            data["otherData"][key] = poisoned(data["otherData"][key], payload, place)
    file = folder / "poisoned.json"
    file.write_text(json.dumps(data))
    return file


def poisoned_sidecar(file, payload):
    """Rewrite what stands beside a trace, with the payload after all texts and names."""
    contents = json.loads(gzip.decompress(file.read_bytes()))

    def keyed(value):
        if isinstance(value, dict) and not value.keys() & {"name", "places", "files", "begin_ns", "metrics", "layers", "frames", "parent", "row", "argument"}:
            return {k + payload: keyed(v) for k, v in value.items()}
        if isinstance(value, dict):
            return {k: keyed(v) for k, v in value.items()}
        if isinstance(value, list):
            return [keyed(v) for v in value]
        return value + payload if isinstance(value, str) else value

    contents["label"] = f"label{payload}"
    for run in contents["runs"]:
        for key, value in run.items():
            run[key] = [f"{m}{payload}" for m in value] if key == "messages" else keyed(value)
        run.setdefault("messages", []).append(f"message {payload}")
    file.write_bytes(gzip.compress(json.dumps(contents).encode()))
