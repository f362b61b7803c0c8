#!/usr/bin/env python3
"""Writes lineitem in a folder for each month of shipping, and reads one month back, with
gstream on the CPU and with DuckDB, in turn. It checks that both wrote and read the same rows,
and prints a table of medians.

    python3 partition.py --gstream ../../gstream --data /data/sf10 --threads 2 --runs 3 --tmp /data/tmp

It needs the Python package duckdb. Seconds are those of the run inside the process, without
its start: gstream's from its report, DuckDB's around the query. "cpu s" is user and system time of the
query, for gstream of the whole process. Both read the folder that gstream wrote. It exits
with 1 when rows differ. --only read measures only that, over a folder that is there.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
MONTH = "1995-03-01"

CHILD = """
import duckdb, sys, time
begin, cpu = time.perf_counter(), time.process_time()
db = duckdb.connect()
db.execute("SET enable_progress_bar = false")
db.execute("SET threads = " + sys.argv[1])
db.execute(sys.argv[2])
print(time.perf_counter() - begin, time.process_time() - cpu)
"""

CHECK = """
import duckdb, sys
duckdb.sql("SET enable_progress_bar = false")
print(duckdb.sql(sys.argv[1]).fetchall())
"""


def run(command):
    """Runs a process: seconds of the processor, MiB at the most, and what it printed."""
    with tempfile.TemporaryFile() as printed:
        child = subprocess.Popen([str(c) for c in command], stdout=printed, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        printed.seek(0)
        text = printed.read().decode()
    if child.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))}: {text}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, text


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--gstream", type=Path, required=True)
    p.add_argument("--data", type=Path, required=True)
    p.add_argument("--tmp", type=Path, default=Path(tempfile.gettempdir()))
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--runs", type=int, default=3)
    p.add_argument("--only", choices=["write", "read"])
    args = p.parse_args()
    ours, theirs = args.tmp / "gstream-months", args.tmp / "duckdb-months"
    result, result2 = args.tmp / "gstream-month.parquet", args.tmp / "duckdb-month.parquet"
    table = args.data / "lineitem.parquet"
    write = f"COPY (SELECT *, date_trunc('month', l_shipdate)::DATE AS month FROM '{table}') TO '{theirs}' (FORMAT parquet, PARTITION_BY (month))"
    read = f"""COPY (SELECT l_returnflag, l_linestatus, count(*) AS n, sum(l_quantity) AS quantity, sum(l_extendedprice * (1 - l_discount)) AS revenue,
        max(length(l_comment)) AS longest FROM read_parquet('{ours}/**/*.parquet', hive_types = {{'month': DATE}}) WHERE month = DATE '{MONTH}'
        GROUP BY ALL) TO '{result2}' (FORMAT parquet)"""

    def gstream(job, *sets):
        with tempfile.NamedTemporaryFile() as report:
            cpu, most, _ = run([args.gstream, "run", HERE.parent / "etl" / f"{job}.yaml", "--device", "host", "--threads", args.threads, "--progress", "none", "--overwrite",
                                "--report", report.name] + [x for s in sets for x in ("--set", s)])
            return json.loads(Path(report.name).read_text())["wall_ns"] / 1e9, cpu, most

    def duckdb(sql):
        _, most, text = run([sys.executable, "-c", CHILD, args.threads, sql])
        return *map(float, text.split()), most

    seen = {k: [] for k in ("write", "read")}
    for _ in range(args.runs if args.only != "read" else 0):
        shutil.rmtree(theirs, ignore_errors=True)
        seen["write"].append((gstream("partition", f"data={args.data}", f"out={ours}"), duckdb(write)))
        print(seen["write"][-1], file=sys.stderr, flush=True)
    same = "SELECT count(*), sum(hash(t)) FROM read_parquet('{}/**/*.parquet', hive_types = {{'month': DATE}}) t"
    checks = [run([sys.executable, "-c", CHECK, same.format(d)])[2] for d in (ours, theirs)] if seen["write"] else [0, 0]
    shutil.rmtree(theirs, ignore_errors=True)
    for _ in range(5 * args.runs if args.only != "write" else 0):
        seen["read"].append((gstream("month", f"lines={ours}", f"out={result}"), duckdb(read)))
    rows = "SELECT list(t ORDER BY l_returnflag, l_linestatus) FROM '{}' t"
    checks += [run([sys.executable, "-c", CHECK, rows.format(f)])[2] for f in (result, result2)] if seen["read"] else [0, 0]
    print("| | gstream s | DuckDB s | ratio | gstream cpu s | DuckDB cpu s | gstream MiB | DuckDB MiB | ratio |\n|---|---|---|---|---|---|---|---|---|")
    for what, pairs in seen.items():
        if pairs:
            g, d = ([statistics.median(run[k] for run in side) for k in (0, 1, 2)] for side in zip(*pairs))
            print(f"| {what} | {g[0]:.2f} | {d[0]:.2f} | **{g[0] / d[0]:.2f}** | {g[1]:.2f} | {d[1]:.2f} | {g[2]:.0f} | {d[2]:.0f} | **{g[2] / d[2]:.2f}** |")
    equal = checks[0] == checks[1] and checks[2] == checks[3]
    print("rows equal" if equal else f"ROWS DIFFER: {checks}")
    sys.exit(0 if equal else 1)


if __name__ == "__main__":
    main()
