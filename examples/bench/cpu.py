#!/usr/bin/env python3
"""Runs the example jobs on the CPU device and in DuckDB, in turn, from Parquet to Parquet,
with several numbers of threads, checks that the rows are equal, and prints a table.

    python3 cpu.py --gstream ../../gstream --data /data/sf30 --threads 1,4,16 --runs 3

It needs the Python package duckdb. It times both as whole processes, and DuckDB also from
inside its process, without the start of Python. The checks are those of gpu.py. It exits
with 1 when a job failed or differs.
"""

import argparse
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from gpu import ETL, HERE, TPCH, fingerprint, run, same_types, sort_keys


def measure(args, job, threads, tmp):
    """Runs one job on both engines, in turn: seconds, MiB, and whether the rows are equal."""
    yaml = HERE.parent / ("etl" if job in ETL else "tpch") / f"{job}.yaml"
    ours, theirs = Path(tmp) / "gstream.parquet", Path(tmp) / "duckdb.parquet"
    times = {"gstream": [], "duckdb": [], "duckdb inside": [], "gstream MiB": [], "duckdb MiB": []}
    for i in range(args.warmup + args.runs):
        took, ours_usage, _ = run([args.gstream, "run", yaml, "--device", "host", "--threads", str(threads), "--progress", "none", "--overwrite",
                       "--set", f"data={args.data}", "--set", f"out={ours}"] + args.flags.split())
        process, theirs_usage, inside = run([sys.executable, HERE / "gpu.py", "--child", job, "--data", args.data, "--out", theirs, "--threads", str(threads)])
        if i >= args.warmup:
            for what, v in (("gstream", took), ("duckdb", process), ("duckdb inside", float(inside)), ("gstream MiB", ours_usage.ru_maxrss / 1024),
                            ("duckdb MiB", theirs_usage.ru_maxrss / 1024)):
                times[what].append(v)
    # In another process: one with DuckDB in it would count for the memory of its children.
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        columns, want = pool.submit(fingerprint, theirs, None, sort_keys(job)).result()
        names, got = pool.submit(fingerprint, ours, dict(columns), sort_keys(job)).result()
    return {e: statistics.median(t) for e, t in times.items()}, same_types(names, columns) and got == want


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--gstream", default="gstream")
    p.add_argument("--data", required=True)
    p.add_argument("--jobs", default=",".join(ETL + TPCH))
    p.add_argument("--threads", default=str(os.cpu_count()))
    p.add_argument("--runs", type=int, default=3)
    p.add_argument("--warmup", type=int, default=1)
    p.add_argument("--flags", default="", help="more flags of gstream run")
    p.add_argument("--tmp", default=None)
    p.add_argument("--json", default=None)
    args = p.parse_args()
    counts = [int(t) for t in args.threads.split(",")]
    results, failed = {}, []
    print("| job | " + " | ".join(f"{t} threads: gstream s, duckdb s (inside), ratio; MiB" for t in counts) + " | speed-up gstream, duckdb | rows equal |")
    print("|---" * (len(counts) + 3) + "|")
    with tempfile.TemporaryDirectory(dir=args.tmp) as tmp:
        for job in args.jobs.split(","):
            line, equal = [job], True
            try:
                for t in counts:
                    med, same = measure(args, job, t, tmp)
                    results.setdefault(job, {})[t] = med
                    equal = equal and same
                    line.append(f"{med['gstream']:.3f}, {med['duckdb']:.3f} ({med['duckdb inside']:.3f}), **{med['gstream'] / med['duckdb']:.2f}**; {med['gstream MiB']:.0f}, {med['duckdb MiB']:.0f}")
            except RuntimeError as err:
                print(f"| {job} | failed: {err} |", flush=True)
                failed.append(job)
                continue
            first, last = results[job][counts[0]], results[job][counts[-1]]
            line.append(f"{first['gstream'] / last['gstream']:.1f}, {first['duckdb'] / last['duckdb']:.1f}")
            line.append("yes" if equal else "NO")
            if not equal:
                failed.append(job)
            print("| " + " | ".join(line) + " |", flush=True)
    for t in counts:
        ratios = [r[t]["gstream"] / r[t]["duckdb"] for r in results.values() if t in r]
        if ratios:
            inside = [r[t]["gstream"] / r[t]["duckdb inside"] for r in results.values() if t in r]
            print(f"\n{t} threads: geometric mean {statistics.geometric_mean(ratios):.2f}, worst {max(ratios):.2f}; against DuckDB inside its process {statistics.geometric_mean(inside):.2f}, worst {max(inside):.2f}")
    if args.json:
        Path(args.json).write_text(json.dumps(results, indent=1))
    if failed:
        sys.exit(f"failed or different: {', '.join(failed)}")


if __name__ == "__main__":
    main()
