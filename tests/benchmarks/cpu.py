"""Sum what `pytest --cpu FILE` wrote: processor seconds of each test file, then the dearest tests.

    python -m pytest -n 2 --dist loadfile --cpu /tmp/cpu.tsv; python tests/benchmarks/cpu.py /tmp/cpu.tsv [COUNT]
"""

import sys
from collections import defaultdict
from pathlib import Path

lines = [line.split("\t", 1) for line in Path(sys.argv[1]).read_text().splitlines()]
count = int(sys.argv[2]) if len(sys.argv) > 2 else 30
tests = sorted(((float(seconds), name) for seconds, name in lines), reverse=True)
files = defaultdict(list)
for seconds, name in tests:
    files[name.split("::")[0]].append(seconds)
print(f"{sum(seconds for seconds, _ in tests):8.1f} s of {len(tests):,} tests")
for file, each in sorted(files.items(), key=lambda item: -sum(item[1]))[:count]:
    print(f"{sum(each):8.1f} s  {len(each):4} tests  {file}")
for seconds, name in tests[:count]:
    print(f"{seconds:8.1f} s  {name}")
