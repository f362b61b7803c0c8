#!/usr/bin/env python3
"""Times gstream and DuckDB over lineitem as CSV, in turn, as whole processes, and prints a table.

Needs the package duckdb. --data is a folder with lineitem.parquet, of which DuckDB makes
lineitem.csv in --work."""

import argparse
import os
import statistics
import subprocess
import sys
import time

COLUMNS = ("l_orderkey l_partkey l_suppkey l_linenumber l_quantity l_extendedprice l_discount l_tax l_returnflag "
           "l_linestatus l_shipdate l_commitdate l_receiptdate l_shipinstruct l_shipmode l_comment").split()
QUERIES = {
    "rows": "SELECT count(*) FROM '{csv}'",
    "a sum over a filter (Q6)": "SELECT sum(l_extendedprice * l_discount) FROM '{csv}' WHERE l_shipdate >= DATE "
        "'1994-01-01' AND l_shipdate < DATE '1995-01-01' AND l_discount BETWEEN 0.05 AND 0.07 AND l_quantity < 24",
    "a group-by (Q1)": "SELECT l_returnflag, l_linestatus, sum(l_quantity), sum(l_extendedprice), sum(l_extendedprice * "
        "(1 - l_discount)), avg(l_tax), count(*) FROM '{csv}' WHERE l_shipdate <= DATE '1998-09-02' GROUP BY ALL",
    "all columns": "SELECT " + ", ".join(f"max({c})" for c in COLUMNS) + " FROM '{csv}'",
    "CSV to Parquet": "COPY (FROM '{csv}') TO '{work}/out-{engine}.parquet'",
    "Parquet to CSV": "COPY (FROM '{parquet}') TO '{work}/out-{engine}.csv'",
}
DUCKDB = "import sys, duckdb; c = duckdb.connect(); c.sql('SET threads = ' + sys.argv[1]); r = c.sql(sys.argv[2]); " \
    "r and print(r.fetchall())"


def timed(command):
    begin = time.monotonic()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    errors = child.stderr.read()
    _, status, usage = os.wait4(child.pid, 0)
    if status != 0:
        sys.exit(f"{command}: {errors.decode()}")
    return time.monotonic() - begin, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--gstream", required=True)
    arguments.add_argument("--data", required=True)
    arguments.add_argument("--work", required=True)
    arguments.add_argument("--threads", default="2")
    arguments.add_argument("--runs", type=int, default=5)
    arguments.add_argument("--only", help="names of measurements, by commas")
    a = arguments.parse_args()
    parquet, csv = os.path.join(a.data, "lineitem.parquet"), os.path.join(a.work, "lineitem.csv")
    if not os.path.exists(csv):
        timed([sys.executable, "-c", DUCKDB, a.threads, f"COPY (FROM '{parquet}') TO '{csv}'"])
    print("| | gstream s | DuckDB s | time ratio | gstream CPU s | DuckDB CPU s | CPU ratio | gstream MiB | DuckDB MiB |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name, query in QUERIES.items():
        if a.only and name not in a.only.split(","):
            continue
        figures = {"gstream": [], "duckdb": []}
        for run in range(a.runs + 1):
            for engine, list in figures.items():
                text = query.format(csv=csv, parquet=parquet, work=a.work, engine=engine)
                out = text.split(" TO '")[-1].rstrip("'") if text.startswith("COPY") else None
                if out and os.path.exists(out):
                    os.remove(out)
                command = [a.gstream, "sql", "--device", "host", "--threads", a.threads, "--format", "csv", text]
                if engine == "duckdb":
                    command = [sys.executable, "-c", DUCKDB, a.threads, text]
                measured = timed(command)
                if run > 0:  # the first warms the file cache
                    list.append(measured)
        g, d = ([statistics.median(m[i] for m in figures[e]) for i in range(3)] for e in ("gstream", "duckdb"))
        print(f"| {name} | {g[0]:.2f} | {d[0]:.2f} | **{g[0] / d[0]:.2f}** | {g[1]:.2f} | {d[1]:.2f} | "
              f"**{g[1] / d[1]:.2f}** | {g[2]:.0f} | {d[2]:.0f} |", flush=True)


main()
