#!/usr/bin/env python3
"""Runs the example jobs on the GPU, on the CPU and in DuckDB, in turn, from Parquet
to Parquet, checks that the rows are equal, and prints a table.

    python3 gpu.py --gstream ../../gstream --data /data/sf30 --runs 3
    python3 gpu.py --gstream ../../gstream --data /data/sf100 --engines duckdb:24,cuda,cuda:8,cuda:8+16 --warmup 0 --runs 1

An engine may have limits of memory in GiB: cuda:8 has 8 of the device's, cuda:8+16 also 16 of the host's, host:8 and
duckdb:8 have 8 of the host's. The first engine's types are those by which values are compared. It needs the Python package duckdb. It times gstream as a whole process, including start-up
and the opening and closing of the GPU, and DuckDB from inside its process, without the start
of Python. It also times both as whole processes, with the time of their cores, and both from inside: gstream by its
report, which includes the opening of the GPU. It compares rows as bags: counts, and sums of hashes of
all columns, DOUBLE to 11 digits. It also compares the names and types of the columns and, if a
job sorts, the sequence of its keys. It exits with 1 when a job failed or differs.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ETL = ["filter", "join", "aggregate", "join_aggregate", "sort"]
TPCH = ["q01", "q03", "q05", "q06", "q10", "q12", "q14", "q19"]
TABLES = ["lineitem", "orders", "customer", "part", "supplier", "partsupp", "nation", "region"]


def limits(engine):
    """The name of an engine, and its limits of device and host memory in GiB, or None."""
    name, _, of = engine.partition(":")
    if name != "cuda":
        return name, None, of or None
    device, _, host = of.partition("+")
    return name, device or None, host or None


def duckdb_job(job, data, out, threads, memory, tmp):
    """The child process: one query, and the seconds it took."""
    import duckdb

    db = duckdb.connect(config={"threads": threads})
    if memory:
        db.execute(f"set memory_limit = '{memory}GiB'")
        db.execute(f"set temp_directory = '{tmp}'")
    for t in TABLES:
        if (Path(data) / f"{t}.parquet").exists():
            db.execute(f"create view {t} as from read_parquet('{data}/{t}.parquet')")
    query = (HERE.parent / "compare" / "sql" / f"{job}.sql").read_text()
    start = time.perf_counter()
    db.execute(f"copy ({query}) to '{out}' (format parquet, compression snappy)")
    print(time.perf_counter() - start)


def sort_keys(job):
    """The columns that the rows of a job are sorted by."""
    query = (HERE.parent / "compare" / "sql" / f"{job}.sql").read_text()
    order = re.search(r"order by ([^()]*?)(?:limit \d+)?\s*$", query)
    return [k.split()[0] for k in order.group(1).split(",")] if order else []


def same_types(ours, theirs):
    """Whether two lists of columns are one, but for what DuckDB cannot write: sums of integers are
    HUGEINT, which it writes as DOUBLE and gstream, exactly, as DECIMAL(38,0)."""
    return len(ours) == len(theirs) and all(
        a == b or (a[0] == b[0] and a[1] == "DECIMAL(38,0)" and b[1] == "DOUBLE") for a, b in zip(ours, theirs))


def fingerprint(path, columns, keys):
    """The columns of a file, its rows' count and the sum of a hash of each, read as the given columns,
    and the sum of a hash of the position and the sort keys of each."""
    import duckdb

    db = duckdb.connect()
    kinds = db.execute(f"select column_name, column_type from (describe from read_parquet('{path}'))").fetchall()
    types = dict(columns or kinds)

    def text(name):
        column = f'"{name}"::{types[name]}'
        return f"printf('%.10e', {column}::double)" if types[name] in ("DOUBLE", "FLOAT") else column

    rows = f"hash({', '.join(text(name) for name in types)})"
    order = f"hash(file_row_number, {', '.join(text(k) for k in keys)})" if keys else "0"
    row = db.execute(f"select count(*), sum({rows}::hugeint), sum({order}::hugeint) from read_parquet('{path}', file_row_number=true)").fetchone()
    return kinds, row


def run(command):
    """Runs a process: seconds, its resource usage, and what it printed."""
    with tempfile.TemporaryFile() as printed:
        start = time.perf_counter()
        child = subprocess.Popen([str(c) for c in command], stdout=printed, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(child.pid, 0)
        took = time.perf_counter() - start
        child.returncode = os.waitstatus_to_exitcode(status)
        printed.seek(0)
        text = printed.read().decode()
    if child.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))}: {text}")
    return took, usage, text


def measure(args, job, tmp):
    """Times one job on every engine, in turn. Results are read after the last run, and removed after each."""
    folder = "etl" if job in ETL else "tpch"
    yaml = HERE.parent / folder / f"{job}.yaml"
    out = Path(tmp) / f"{job}.parquet"
    times = {e: [] for e in args.engines + ["duckdb process"]}
    cores = {e: {"user": [], "user and system": []} for e in args.engines}  # seconds of whole processes
    reports, prints, columns = {e: [] for e in args.engines}, {}, None
    for i in range(args.warmup + args.runs):
        for e in args.engines:
            name, device, host = limits(e)
            if name == "host" and not args.warmup <= i < args.warmup + args.host_runs:
                continue
            if name == "duckdb":
                process, usage, text = run([sys.executable, __file__, "--child", job, "--data", args.data, "--out", out, "--threads", str(args.threads),
                                     "--memory", host or "", "--spill", args.spill])
                took = float(text)
            else:
                report = Path(tmp) / "report.json"
                memory = ["--device-memory", f"{device}GiB"] if device else []
                memory += ["--host-memory", f"{host}GiB"] if host else []
                took, usage, _ = run([args.gstream, "run", yaml, "--device", name, "--threads", str(args.threads), "--progress", "none", "--overwrite", *memory,
                               "--spill-dir", args.spill, "--report", report, "--set", f"data={args.data}", "--set", f"out={out}"])
                if i >= args.warmup:
                    reports[e].append(json.loads(report.read_text()))
            if i >= args.warmup:
                times[e].append(took)
                cores[e]["user"].append(usage.ru_utime)
                cores[e]["user and system"].append(usage.ru_utime + usage.ru_stime)
                if name == "duckdb":
                    times["duckdb process"].append(process)
            if e not in prints and i + 1 >= args.warmup + (min(args.host_runs, args.runs) if name == "host" else args.runs):
                kinds, prints[e] = fingerprint(out, columns, sort_keys(job))
                columns = columns or kinds
                if not same_types(kinds, columns):
                    prints[e] = f"columns {kinds}"
            out.unlink()
    return times, cores, reports, prints


def spilled(report):
    """The bytes that a run wrote to host memory and to disk, in GiB."""
    s = report.get("spill") or {}
    return ", ".join(f"{t} {s[t]['bytes_in'] / 2**30:.1f}" for t in ("host", "disk") if s.get(t, {}).get("bytes_in"))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--gstream", default="gstream")
    p.add_argument("--data", required=True)
    p.add_argument("--jobs", default=",".join(ETL + TPCH))
    p.add_argument("--engines", default="duckdb,cuda,host")
    p.add_argument("--runs", type=int, default=3)
    p.add_argument("--warmup", type=int, default=1)
    p.add_argument("--host-runs", type=int, default=3, help="of the runs, how many the CPU device takes part in")
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--tmp", default=None)
    p.add_argument("--spill", default=os.environ.get("TMPDIR", "/var/tmp"), help="folder for what does not fit memory")
    p.add_argument("--json", default=None)
    p.add_argument("--memory", help=argparse.SUPPRESS)
    p.add_argument("--child", help=argparse.SUPPRESS)
    p.add_argument("--out", help=argparse.SUPPRESS)
    args = p.parse_args()
    if args.child:
        return duckdb_job(args.child, args.data, args.out, args.threads, args.memory, args.spill)
    args.engines = args.engines.split(",")
    ours = next((e for e in args.engines if not e.startswith("duckdb")), None)
    duckdb = next((e for e in args.engines if e.startswith("duckdb")), None)
    results, failed, ratios, against = {}, [], {}, {}
    limited = [e for e in args.engines if e.startswith("cuda:")]
    print("| job | " + " | ".join(f"{e} s" + (", spilled GiB" if e in limited else "") for e in args.engines) + f" | {ours}/duckdb | duckdb process s, ratio | {ours} inside s, ratio | user s, duckdb's, ratio | user and system s, duckdb's, ratio | kernels s | kernels % | up GB, % of link | down GB, % of link | rows equal |")
    print("|---" * (len(args.engines) + 11) + "|")
    with tempfile.TemporaryDirectory(dir=args.tmp) as tmp:
        for job in args.jobs.split(","):
            try:
                times, cores, reports, prints = measure(args, job, tmp)
            except RuntimeError as err:
                print(f"| {job} | failed: {err} |", flush=True)
                failed.append(job)
                continue
            med = {e: statistics.median(t) for e, t in times.items() if t}
            line = [job] + [f"{med[e]:.3f}" + (f", {spilled(reports[e][-1])}" if e in limited else "") for e in args.engines]
            if ours and duckdb:
                run_s = statistics.median(r["wall_ns"] / 1e9 for r in reports[ours])
                pairs = {f"{ours}/duckdb": (med[ours], med[duckdb]), "whole processes": (med[ours], med["duckdb process"]), "inside both": (run_s, med[duckdb])}
                for what in cores[ours]:
                    pairs[what] = tuple(statistics.median(cores[e][what]) for e in (ours, duckdb))
                of = {what: mine / theirs for what, (mine, theirs) in pairs.items()}
                for what, ratio in of.items():
                    ratios.setdefault(what, []).append(ratio)
                for e in (e for e in limited if e != ours):
                    against.setdefault(e, []).append((med[e] / med[ours], med[e] / med[duckdb]))
                line += [f"**{of[f'{ours}/duckdb']:.2f}**", f"{med['duckdb process']:.3f}, {of['whole processes']:.2f}", f"{run_s:.3f}, {of['inside both']:.2f}"]
                line += [f"{pairs[what][0]:.2f}, {pairs[what][1]:.2f}, {of[what]:.2f}" for what in cores[ours]]
            else:
                line += [""] * 5
            reports = reports[ours] if ours and limits(ours)[0] == "cuda" else None
            if reports:
                r = sorted(reports, key=lambda r: r["wall_ns"])[len(reports) // 2]
                a = r["activity"]
                line += [f"{a['kernel_ns'] / 1e9:.3f}", f"{100 * a['kernel_ns'] / r['wall_ns']:.0f}",
                         f"{a['bytes_up'] / 1e9:.2f}, {100 * a.get('link_fraction_up', 0):.0f}",
                         f"{a['bytes_down'] / 1e9:.2f}, {100 * a.get('link_fraction_down', 0):.0f}"]
            else:
                line += [""] * 4
            equal = len(set(prints.values())) == 1
            line.append(f"yes, {prints[args.engines[0]][0]}" if equal else f"NO {prints}")
            if not equal:
                failed.append(job)
            print("| " + " | ".join(line) + " |", flush=True)
            results[job] = {"seconds": times, "cores": cores, "reports": reports, "rows_equal": equal}
    for what, r in ratios.items():
        print(f"\n{what}: geometric mean {statistics.geometric_mean(r):.2f}, worst {max(r):.2f}")
    for e, pairs in against.items():
        own, theirs = zip(*pairs)
        print(f"{e}: times the time without limits {statistics.geometric_mean(own):.2f}, worst {max(own):.2f}; "
              f"times DuckDB's {statistics.geometric_mean(theirs):.2f}, worst {max(theirs):.2f}")
    if args.json:
        Path(args.json).write_text(json.dumps(results, indent=1))
    if failed:
        sys.exit(f"failed or different: {', '.join(failed)}")


if __name__ == "__main__":
    main()
