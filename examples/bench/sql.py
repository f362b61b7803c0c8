#!/usr/bin/env python3
"""Runs SQL texts by gstream and by DuckDB in turn, whole processes, and compares their rows.

    sql.py --gstream gstream --data DIR --texts DIR [--runs 3] [flags of gstream run]

The data are Parquet files, one for each table: customer.parquet and so on. The texts are files with one query each, as
DuckDB's extensions tpch and tpcds give them: FROM tpch_queries(). Both write their rows to a Parquet file. The times
are medians of the wall time and of the CPU time, user and system. At the end each runs all texts in one process.
Needs the Python package duckdb.
"""
import argparse
import decimal
import glob
import json
import math
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

DUCKDB = """
import duckdb, json, sys
tables, memory, tmp, texts = json.load(open(sys.argv[1])), *sys.argv[2:4], sys.argv[4:]
c = duckdb.connect(config={"memory_limit": memory, "temp_directory": tmp})
for name, path in tables.items():
    c.execute(f"CREATE VIEW {name} AS FROM '{path}'")
for text in texts:
    c.execute(f"COPY ({open(text).read()}) TO '{text}.parquet' (FORMAT parquet)")
"""
NUMBER = (int, float, decimal.Decimal)


def key(row):
    return tuple((0, "") if v is None else (1, f"{float(v):.6g}") if isinstance(v, NUMBER) else (2, str(v)) for v in row)


def same(a, b):
    for x, y in zip(a, b):
        if x is None or y is None:
            if x is not y:
                return False
        elif isinstance(x, NUMBER) and isinstance(y, NUMBER):
            if x != y and not math.isclose(x, y, rel_tol=1e-9, abs_tol=1e-9):
                return False
        elif str(x).rstrip() != str(y).rstrip():
            return False
    return len(a) == len(b)


def rows(path):
    import duckdb
    return sorted(duckdb.connect().execute(f"FROM '{path}'").fetchall(), key=key)


def timed(command):
    """Returns the wall time and the CPU time of a command, and its error."""
    begin, before = time.time(), resource.getrusage(resource.RUSAGE_CHILDREN)
    p = subprocess.run(command, capture_output=True, text=True)
    wall, after = time.time() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return (wall, cpu), p.stderr.strip()[-500:] if p.returncode else ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in "gstream", "data", "texts":
        parser.add_argument("--" + name, required=True)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--tmp", default=tempfile.gettempdir())
    parser.add_argument("--duckdb-memory", default="24GB")
    args, flags = parser.parse_known_args()
    tables = {os.path.basename(p)[:-8]: os.path.abspath(p) for p in glob.glob(args.data + "/*.parquet")}
    ratios, jobs, queries, sums, wrong = [], [], [], [0, 0, 0, 0], 0
    with tempfile.TemporaryDirectory(dir=args.tmp) as tmp:
        at = lambda name: os.path.join(tmp, name)
        json.dump(tables, open(at("tables.json"), "w"))
        open(at("duck.py"), "w").write(DUCKDB)
        duckdb = [sys.executable, at("duck.py"), at("tables.json"), args.duckdb_memory, tmp]
        print("| text | gstream s | DuckDB s | ratio | gstream CPU s | DuckDB CPU s | ratio | rows equal |")
        print("|---|---|---|---|---|---|---|---|")
        for text in sorted(glob.glob(args.texts + "/*.sql")):
            name, query = os.path.basename(text)[:-4], open(text).read().strip().rstrip(";")
            queries.append(at(name + ".sql"))
            open(queries[-1], "w").write(query)
            jobs.append(at(name + ".yaml"))
            json.dump({"sources": {t: {"parquet": p} for t, p in tables.items() if t in query.lower()},
                       "steps": [{"sql": query.replace("$", "$$")}],
                       "output": {"parquet": at(name + ".parquet"), "overwrite": True}}, open(jobs[-1], "w"))
            ours, theirs, error = [], [], ""
            for _ in range(args.runs):
                for times, command in ((ours, [args.gstream, "run", jobs[-1], *flags]),
                                       (theirs, [*duckdb, queries[-1]])):
                    seconds, error = timed(command)
                    times.append(seconds)
                    if error:
                        break
                if error:
                    break
            if error:
                wrong += 1
                print(f"| {name} | {error} |", flush=True)
                continue
            x, y, u, v = (statistics.median(t[i] for t in times) for i in range(2) for times in (ours, theirs))
            a, b = rows(at(name + ".parquet")), rows(queries[-1] + ".parquet")
            equal = len(a) == len(b) and all(map(same, a, b))
            wrong += not equal
            ratios.append((math.log(x / y), math.log(u / v)))
            sums = [a + b for a, b in zip(sums, (x, y, u, v))]
            print(f"| {name} | {x:.2f} | {y:.2f} | {x / y:.2f} | {u:.2f} | {v:.2f} | {u / v:.2f} | "
                  f"{'yes' if equal else 'NO'}, {len(b)} |", flush=True)
        wall, cpu = (math.exp(statistics.mean(r)) for r in zip(*ratios)) if ratios else (0, 0)
        print(f"\ngeometric mean {wall:.2f}, sums {sums[0]:.1f} s and {sums[1]:.1f} s, {wrong} wrong")
        print(f"geometric mean of CPU times {cpu:.2f}, sums {sums[2]:.1f} s and {sums[3]:.1f} s")
        for engine, command in ("gstream", [args.gstream, "run", *jobs, *flags]), ("DuckDB", [*duckdb, *queries]):
            (seconds, _), error = timed(command)
            print(f"all texts in one process of {engine}: {seconds:.1f} s {error}")


if __name__ == "__main__":
    main()
