"""What a cue costs, beside everybody else's: `make bench`; docs/performance.md is what it found.

    .venv/bin/python -m tests.bench               the whole table: 25 minutes, alone on two cores
    .venv/bin/python -m tests.bench --smoke       two minutes: whether everything still runs, not how fast
    .venv/bin/python -m tests.bench --list        the scenarios; name some to run only these
    .venv/bin/python -m tests.bench.report        docs/performance.md and its plots, from the newest results

| module | what |
|---|---|
| `loadgen/` | the load generator, in C: plans in, one JSON object out; judges each stream's account |
| `plan` | what it sends: requests that open streams, and publishes, as bytes |
| `target`, `ours`, `peers`, `programs/` | what is measured: our replicas, the official SDKs, nchan |
| `scenario`, `catalogue` | what is asked of them, by whom, how often |
| `measurement` | one run: a fresh target, the load generator, the books of both sides compared |
| `results`, `host` | JSON lines under build/bench/, with versions and machine; /proc |
| `asking` | what has no streams: reads, and pages of lists |
| `model` | what a large installation needs, from these figures |
| `table`, `plots`, `report` | the page |
| `publish_script`, `reads`, `neighbours` | benchmarks of their own, run by their names |

Rules:

1. Loopback only. Each loop has a ceiling. Only processes that were started here are ended, by their ids.
2. What is compared is measured side by side in one run, in turns: times drift by 30 % between runs. Ratios
   are medians over such pairs; no pair, no ratio.
3. CPU is that of the server's processes by the scheduler's own counters, Redis' apart. Nothing that was not
   exact (a cue lost, told twice or to somebody else) is counted.
"""
