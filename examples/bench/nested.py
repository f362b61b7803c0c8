#!/usr/bin/env python3
"""Times gstream and DuckDB over TPC-H as nested columns, in turn, as whole processes, and prints a table.

Needs the package duckdb. --data is a folder with customer.parquet, orders.parquet and lineitem.parquet. The first job
writes customers with lists of orders with lists of lines, which the others read. The rows of each job are compared."""

import argparse
import os
import statistics
import sys
from string import Template

from text import timed

LINE = ("l_partkey l_suppkey l_linenumber l_quantity l_extendedprice l_discount l_tax l_returnflag l_linestatus "
        "l_shipdate l_commitdate l_receiptdate l_shipinstruct l_shipmode l_comment").split()
ORDER = "o_orderkey o_orderstatus o_totalprice o_orderdate o_orderpriority o_clerk o_shippriority o_comment".split()


def struct(fields, more=""):
    return "{" + ", ".join(f"'{f}': {f}" for f in fields) + more + "}"


def fields(value, names):
    return ", ".join(f"{value}.{n}" for n in names)


# DuckDB takes lists apart faster in SELECT than in FROM.
ORDERS = "FROM (SELECT c_custkey, unnest(orders) AS o FROM '$nested')"
LINES = "FROM (SELECT c_custkey, o, unnest(o.lines) AS l " + ORDERS + ")"
JOBS = {
    "nest": "COPY (SELECT c.*, orders FROM '$data/customer.parquet' AS c LEFT JOIN (SELECT o_custkey, list("
            + struct(ORDER, ", 'lines': lines") + " ORDER BY o_orderkey) AS orders FROM '$data/orders.parquet' JOIN "
            "(SELECT l_orderkey, list(" + struct(LINE) + " ORDER BY l_linenumber) AS lines "
            "FROM '$data/lineitem.parquet' GROUP BY l_orderkey) ON l_orderkey = o_orderkey GROUP BY o_custkey) "
            "ON o_custkey = c_custkey) TO '$out'",
    "unnest": "COPY (SELECT c_custkey, " + fields("o", ORDER) + ", " + fields("l", LINE) + f" {LINES}) TO '$out'",
    "aggregate": "COPY (SELECT l.l_returnflag AS f, l.l_linestatus AS s, sum(l.l_quantity) AS q, "
                 "sum(l.l_extendedprice) AS p, sum(l.l_extendedprice * (1 - l.l_discount)) AS d, max(l.l_tax) AS t, "
                 f"count(*) AS n {LINES} WHERE l.l_shipdate <= DATE '1998-09-02' GROUP BY ALL) TO '$out'",
    "elements": "COPY (SELECT c_nationkey AS n, count(*) AS c, sum(len(orders))::BIGINT AS o, "
                "max(orders[1].o_totalprice) AS p, max(orders[-1].lines[1].l_shipdate) AS d FROM '$nested' GROUP BY "
                "ALL) TO '$out'",
}
DUCKDB = "import sys, duckdb; c = duckdb.connect(); c.sql('SET threads = ' + sys.argv[1]); c.sql(sys.argv[2])"
SUM = "SELECT count(*), sum(hash(t)::HUGEINT) FROM (SELECT COLUMNS(*)::VARCHAR FROM '{}') t"


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--gstream", required=True)
    arguments.add_argument("--data", required=True)
    arguments.add_argument("--work", required=True)
    arguments.add_argument("--threads", default="2")
    arguments.add_argument("--runs", type=int, default=5)
    arguments.add_argument("--jobs", default=",".join(JOBS))
    a = arguments.parse_args()
    nested = os.path.join(a.work, "nested.parquet")
    if not os.path.exists(nested):
        timed([sys.executable, "-c", DUCKDB, a.threads, Template(JOBS["nest"]).substitute(data=a.data, out=nested)])
    print("| job | gstream s | DuckDB s | time ratio | gstream CPU s | DuckDB CPU s | CPU ratio | gstream MiB "
          "| DuckDB MiB | rows |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for name in a.jobs.split(","):
        figures = {"gstream": [], "duckdb": []}
        out = {engine: os.path.join(a.work, f"{name}-{engine}.parquet") for engine in figures}
        for run in range(a.runs + 1):
            for engine, list in figures.items():
                if os.path.exists(out[engine]):
                    os.remove(out[engine])
                text = Template(JOBS[name]).substitute(data=a.data, nested=nested, out=out[engine])
                command = [a.gstream, "sql", "--device", "host", "--threads", a.threads, text]
                if engine == "duckdb":
                    command = [sys.executable, "-c", DUCKDB, a.threads, text]
                measured = timed(command)
                if run > 0:  # the first warms the file cache
                    list.append(measured)
        import duckdb
        rows = [duckdb.sql(SUM.format(path)).fetchall() for path in out.values()]
        g, d = ([statistics.median(m[i] for m in figures[e]) for i in range(3)] for e in ("gstream", "duckdb"))
        print(f"| {name} | {g[0]:.2f} | {d[0]:.2f} | **{g[0] / d[0]:.2f}** | {g[1]:.2f} | {d[1]:.2f} | "
              f"**{g[1] / d[1]:.2f}** | {g[2]:.0f} | {d[2]:.0f} | "
              f"{'equal' if rows[0] == rows[1] else 'DIFFERENT'} |", flush=True)


main()
