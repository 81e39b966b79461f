"""The programs of a page: our files joined, and how a saved notebook carries one.

A notebook has a program once for each of its outputs, as Colab shows each in a page of its own. So it is
packed there: a fifth of its size. Its first line says what it is.
"""

import re
import zlib
from base64 import b64encode
from collections.abc import Mapping, Sequence
from importlib import resources

_COMMENTS = re.compile(r"/\*\*.*?\*/ ?|(?:^|  )//.*?$", re.DOTALL | re.MULTILINE)
_PACKED = """\
// The program of this output, packed: the .js files of profnb that draw a report or a timeline.
(async function () {
const {readable, writable} = new DecompressionStream('deflate'), writer = writable.getWriter();
const bytes = Uint8Array.from(atob('%s'), (letter) => letter.charCodeAt(0));
Promise.all([writer.write(bytes), writer.close()]).catch(() => {});
const script = document.createElement('script');
script.textContent = await new Response(readable).text();
document.head.append(script);
script.remove();
})();
"""


def joined(files: Mapping[str, Sequence[str]]) -> str:
    """Join files to a program, without the comments and the indentation that nobody reads there."""
    root = resources.files("profnb")
    paths = [root / folder / name for folder, names in files.items() for name in names]
    text = "\n".join(path.read_text(encoding="utf-8") for path in paths)
    lines = (line.strip() for line in _COMMENTS.sub("", text).split("\n"))
    kept = "\n".join(filter(None, lines))
    return f"(function () {{\n{kept}\n}})();\n"


def packed(program: str) -> str:
    """Pack a program for a notebook: a program that unpacks and runs it."""
    return _PACKED % b64encode(zlib.compress(program.encode(), 9)).decode("ascii")
