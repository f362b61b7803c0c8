#!/usr/bin/env python3
"""Writes tables like those of the Star Schema Benchmark, or runs its 13 queries on the CPU device and in DuckDB,
in turn, from Parquet to Parquet, checks that the rows are equal, and prints a table.

    python3 ssb.py --write --data /data/ssb10 --scale 10
    python3 ssb.py --gstream ../../gstream --data /data/ssb10 --threads 16

It needs the Python package duckdb. The values are drawn evenly by a hash, so every run writes the same tables. DuckDB
is timed from inside its process, without the start of Python. It exits with 1 when a query failed or differs.
"""

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import duckdb

from cpu import run

HERE = Path(__file__).parent
JOBS = HERE / "jobs" / "ssb"

REGIONS = {
    "AFRICA": ["ALGERIA", "ETHIOPIA", "KENYA", "MOROCCO", "MOZAMBIQUE"],
    "AMERICA": ["ARGENTINA", "BRAZIL", "CANADA", "PERU", "UNITED STATES"],
    "ASIA": ["CHINA", "INDIA", "INDONESIA", "JAPAN", "VIETNAM"],
    "EUROPE": ["FRANCE", "GERMANY", "ROMANIA", "RUSSIA", "UNITED KINGDOM"],
    "MIDDLE EAST": ["EGYPT", "IRAN", "IRAQ", "JORDAN", "SAUDI ARABIA"],
}

QUERIES = {
    "1.1": "SELECT sum(lo_extendedprice * lo_discount)::BIGINT AS revenue FROM lineorder, date WHERE lo_orderdate = d_datekey "
        "AND d_year = 1993 AND lo_discount BETWEEN 1 AND 3 AND lo_quantity < 25",
    "1.2": "SELECT sum(lo_extendedprice * lo_discount)::BIGINT AS revenue FROM lineorder, date WHERE lo_orderdate = d_datekey "
        "AND d_yearmonthnum = 199401 AND lo_discount BETWEEN 4 AND 6 AND lo_quantity BETWEEN 26 AND 35",
    "1.3": "SELECT sum(lo_extendedprice * lo_discount)::BIGINT AS revenue FROM lineorder, date WHERE lo_orderdate = d_datekey "
        "AND d_weeknuminyear = 6 AND d_year = 1994 AND lo_discount BETWEEN 5 AND 7 AND lo_quantity BETWEEN 26 AND "
        "35",
    "2.1": "SELECT d_year, p_brand1, sum(lo_revenue)::BIGINT AS revenue FROM lineorder, date, part, supplier WHERE "
        "lo_orderdate = d_datekey AND lo_partkey = p_partkey AND lo_suppkey = s_suppkey AND p_category = 'MFGR#12' "
        "AND s_region = 'AMERICA' GROUP BY d_year, p_brand1",
    "2.2": "SELECT d_year, p_brand1, sum(lo_revenue)::BIGINT AS revenue FROM lineorder, date, part, supplier WHERE "
        "lo_orderdate = d_datekey AND lo_partkey = p_partkey AND lo_suppkey = s_suppkey AND p_brand1 BETWEEN "
        "'MFGR#2221' AND 'MFGR#2228' AND s_region = 'ASIA' GROUP BY d_year, p_brand1",
    "2.3": "SELECT d_year, p_brand1, sum(lo_revenue)::BIGINT AS revenue FROM lineorder, date, part, supplier WHERE "
        "lo_orderdate = d_datekey AND lo_partkey = p_partkey AND lo_suppkey = s_suppkey AND p_brand1 = 'MFGR#2239' "
        "AND s_region = 'EUROPE' GROUP BY d_year, p_brand1",
    "3.1": "SELECT c_nation, s_nation, d_year, sum(lo_revenue)::BIGINT AS revenue FROM lineorder, customer, supplier, date "
        "WHERE lo_custkey = c_custkey AND lo_suppkey = s_suppkey AND lo_orderdate = d_datekey AND c_region = "
        "'ASIA' AND s_region = 'ASIA' AND d_year >= 1992 AND d_year <= 1997 GROUP BY c_nation, s_nation, d_year",
    "3.2": "SELECT c_city, s_city, d_year, sum(lo_revenue)::BIGINT AS revenue FROM lineorder, customer, supplier, date WHERE "
        "lo_custkey = c_custkey AND lo_suppkey = s_suppkey AND lo_orderdate = d_datekey AND c_nation = 'UNITED "
        "STATES' AND s_nation = 'UNITED STATES' AND d_year >= 1992 AND d_year <= 1997 GROUP BY c_city, s_city, "
        "d_year",
    "3.3": "SELECT c_city, s_city, d_year, sum(lo_revenue)::BIGINT AS revenue FROM lineorder, customer, supplier, date WHERE "
        "lo_custkey = c_custkey AND lo_suppkey = s_suppkey AND lo_orderdate = d_datekey AND c_city IN ('UNITED "
        "KI1', 'UNITED KI5') AND s_city IN ('UNITED KI1', 'UNITED KI5') AND d_year >= 1992 AND d_year <= 1997 "
        "GROUP BY c_city, s_city, d_year",
    "3.4": "SELECT c_city, s_city, d_year, sum(lo_revenue)::BIGINT AS revenue FROM lineorder, customer, supplier, date WHERE "
        "lo_custkey = c_custkey AND lo_suppkey = s_suppkey AND lo_orderdate = d_datekey AND c_city IN ('UNITED "
        "KI1', 'UNITED KI5') AND s_city IN ('UNITED KI1', 'UNITED KI5') AND d_yearmonth = 'Dec1997' GROUP BY "
        "c_city, s_city, d_year",
    "4.1": "SELECT d_year, c_nation, sum(lo_revenue - lo_supplycost)::BIGINT AS profit FROM lineorder, customer, supplier, "
        "part, date WHERE lo_custkey = c_custkey AND lo_suppkey = s_suppkey AND lo_partkey = p_partkey AND "
        "lo_orderdate = d_datekey AND c_region = 'AMERICA' AND s_region = 'AMERICA' AND p_mfgr IN ('MFGR#1', "
        "'MFGR#2') GROUP BY d_year, c_nation",
    "4.2": "SELECT d_year, s_nation, p_category, sum(lo_revenue - lo_supplycost)::BIGINT AS profit FROM lineorder, customer, "
        "supplier, part, date WHERE lo_custkey = c_custkey AND lo_suppkey = s_suppkey AND lo_partkey = p_partkey "
        "AND lo_orderdate = d_datekey AND c_region = 'AMERICA' AND s_region = 'AMERICA' AND p_mfgr IN ('MFGR#1', "
        "'MFGR#2') AND d_year IN (1997, 1998) GROUP BY d_year, s_nation, p_category",
    "4.3": "SELECT d_year, s_city, p_brand1, sum(lo_revenue - lo_supplycost)::BIGINT AS profit FROM lineorder, customer, "
        "supplier, part, date WHERE lo_custkey = c_custkey AND lo_suppkey = s_suppkey AND lo_partkey = p_partkey "
        "AND lo_orderdate = d_datekey AND c_region = 'AMERICA' AND s_nation = 'UNITED STATES' AND p_category = "
        "'MFGR#14' AND d_year IN (1997, 1998) GROUP BY d_year, s_city, p_brand1",
}

ORDER = {"1": "", "2": " ORDER BY d_year, p_brand1", "3": " ORDER BY d_year, revenue DESC", "4": " ORDER BY ALL"}


def write(data, scale, threads):
    """Writes the five tables with the columns and numbers of values of the benchmark."""
    data.mkdir(parents=True, exist_ok=True)
    db = duckdb.connect(config={"threads": threads})
    nations = [(region, nation) for region, list_ in REGIONS.items() for nation in list_]
    db.execute("CREATE TABLE nations(i INT, region VARCHAR, nation VARCHAR)")
    db.executemany("INSERT INTO nations VALUES (?, ?, ?)", [(i, *n) for i, n in enumerate(nations)])
    db.execute("CREATE MACRO pick(row, salt, n) AS (hash(row, salt) % n)::INT")
    who = """SELECT r.i + 1 AS {0}_{1}key, format('{2}#{{:09d}}', r.i + 1) AS {0}_name,
        format('{{:x}}', hash(r.i, 1)) AS {0}_address, rpad(nation, 9, ' ')[:9] || pick(r.i, 2, 10) AS {0}_city, nation AS {0}_nation, region AS {0}_region,
        format('{{}}-{{:07d}}', 10 + pick(r.i, 3, 25), pick(r.i, 4, 10000000)) AS {0}_phone{3}
        FROM (SELECT range::INT AS i, pick(range, 5 + {5}, 25) AS n FROM range({4})) r JOIN nations ON n = nations.i ORDER BY 1"""
    segment = ", ['AUTOMOBILE', 'BUILDING', 'FURNITURE', 'MACHINERY', 'HOUSEHOLD'][1 + pick(r.i, 6, 5)] AS c_mktsegment"
    customers, suppliers = round(30_000 * scale), round(2_000 * scale)
    parts = 200_000 * scale.bit_length() if scale >= 1 else round(200_000 * scale)
    orders = round(1_500_000 * scale)
    tables = {
        "customer": who.format("c", "cust", "Customer", segment, customers, 0),
        "supplier": who.format("s", "supp", "Supplier", "", suppliers, 1),
        "part": f"""SELECT i + 1 AS p_partkey, format('part {{:x}}', hash(i, 1) % 100000) AS p_name, 'MFGR#' || m AS p_mfgr,
            'MFGR#' || m || c AS p_category, 'MFGR#' || m || c || b AS p_brand1, 'color' || pick(i, 2, 92) AS p_color,
            'type' || pick(i, 3, 150) AS p_type, 1 + pick(i, 4, 50) AS p_size, 'box' || pick(i, 5, 40) AS p_container
            FROM (SELECT range::INT AS i, 1 + pick(range, 6, 5) AS m, 1 + pick(range, 7, 5) AS c, 1 + pick(range, 8, 40) AS b
            FROM range({parts})) ORDER BY 1""",
        "date": """SELECT strftime(d, '%Y%m%d')::INT AS d_datekey, strftime(d, '%B %-d, %Y') AS d_date, dayname(d) AS d_dayofweek,
            monthname(d) AS d_month, year(d)::INT AS d_year, strftime(d, '%Y%m')::INT AS d_yearmonthnum,
            strftime(d, '%b%Y') AS d_yearmonth, (1 + (dayofyear(d) - 1) // 7)::INT AS d_weeknuminyear
            FROM (SELECT unnest(range(DATE '1992-01-01', DATE '1999-01-01', INTERVAL 1 DAY)) AS d)""",
        "lineorder": f"""SELECT o AS lo_orderkey, l::INT AS lo_linenumber, 1 + pick(o, 1, {customers}) AS lo_custkey,
            1 + pick(o * 8 + l, 2, {parts}) AS lo_partkey, 1 + pick(o * 8 + l, 3, {suppliers}) AS lo_suppkey,
            strftime(DATE '1992-01-01' + pick(o, 4, 2406), '%Y%m%d')::INT AS lo_orderdate,
            ['1-URGENT', '2-HIGH', '3-MEDIUM', '4-NOT SPECI', '5-LOW'][1 + pick(o, 5, 5)] AS lo_orderpriority,
            0 AS lo_shippriority, q AS lo_quantity, q * price AS lo_extendedprice, price * 200 AS lo_ordtotalprice,
            discount AS lo_discount, q * price * (100 - discount) // 100 AS lo_revenue, price * 6 // 10 AS lo_supplycost,
            pick(o * 8 + l, 6, 9) AS lo_tax,
            strftime(DATE '1992-01-01' + pick(o, 4, 2406) + 30 + pick(o * 8 + l, 7, 61), '%Y%m%d')::INT AS lo_commitdate,
            ['REG AIR', 'AIR', 'RAIL', 'SHIP', 'TRUCK', 'MAIL', 'FOB'][1 + pick(o * 8 + l, 8, 7)] AS lo_shipmode
            FROM (SELECT o, l, 1 + pick(o * 8 + l, 9, 50) AS q, 90000 + pick(o * 8 + l, 10, 110000) AS price,
            pick(o * 8 + l, 11, 11) AS discount FROM (SELECT range::INT AS o FROM range({orders})),
            (SELECT range::INT AS l FROM range(1, 8)) WHERE l <= 1 + pick(o, 12, 7))""",
    }
    for name, sql in tables.items():
        db.execute(f"COPY ({sql}) TO '{data / name}.parquet' (ROW_GROUP_SIZE 122880)")
        print(name, db.execute(f"SELECT count(*) FROM '{data / name}.parquet'").fetchone()[0], "rows")


def child(query, data, out, threads):
    """Runs a query in DuckDB and prints the seconds of wall and processor time inside the process."""
    import time
    db = duckdb.connect(config={"threads": threads, "preserve_insertion_order": False})
    for table in ("lineorder", "date", "customer", "supplier", "part"):
        db.execute(f"CREATE VIEW {table} AS FROM '{data / table}.parquet'")
    before, start = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    db.execute(f"COPY ({QUERIES[query]}{ORDER[query[0]]}) TO '{out}'")
    took, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF)
    print(took, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def processor():
    """The seconds of processor time of all processes that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def measure(args, query, tmp):
    """Runs one query on both engines, in turn: medians of seconds, and whether the rows are equal."""
    ours, theirs = Path(tmp) / "gstream.parquet", Path(tmp) / "duckdb.parquet"
    times = []
    for i in range(args.warmup + args.runs):
        before = processor()
        took, _, _ = run([args.gstream, "run", JOBS / f"q{query}.yaml", "--device", args.device, "--threads", args.threads,
                          "--progress", "none", "--overwrite", "--set", f"data={args.data}", "--set", f"out={ours}"])
        cpu = processor() - before
        _, _, inside = run([sys.executable, __file__, "--child", query, "--data", args.data, "--out", theirs,
                            "--threads", args.threads])
        if i >= args.warmup:
            times.append((took, cpu, *map(float, inside.split())))
    rows = [duckdb.sql(f"SELECT columns(*)::VARCHAR FROM '{f}' ORDER BY ALL").fetchall() for f in (ours, theirs)]
    return [statistics.median(t) for t in zip(*times)], rows[0] == rows[1], len(rows[0])


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--gstream", default="gstream")
    p.add_argument("--data", type=Path, required=True)
    p.add_argument("--write", action="store_true", help="write the tables")
    p.add_argument("--scale", type=float, default=1)
    p.add_argument("--queries", default=",".join(QUERIES))
    p.add_argument("--device", default="host")
    p.add_argument("--threads", type=int, default=16)
    p.add_argument("--runs", type=int, default=5)
    p.add_argument("--warmup", type=int, default=1)
    p.add_argument("--child", help="run one query in DuckDB")
    p.add_argument("--out")
    args = p.parse_args()
    if args.write:
        return write(args.data, int(args.scale) if args.scale >= 1 else args.scale, args.threads)
    if args.child:
        return child(args.child, args.data, args.out, args.threads)
    walls, cpus, failed = [], [], []
    print("| query | gstream s (processor) | DuckDB inside s (processor) | ratio (processor) | rows | equal |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as tmp:
        for query in args.queries.split(","):
            (took, cpu, inside, theirs), equal, rows = measure(args, query, tmp)
            walls.append(took / inside)
            cpus.append(cpu / theirs)
            failed += [] if equal else [query]
            print(f"| {query} | {took:.3f} ({cpu:.2f}) | {inside:.3f} ({theirs:.2f}) | **{walls[-1]:.2f}** ({cpus[-1]:.2f}) | {rows} |"
                  f" {'yes' if equal else 'NO'} |", flush=True)
    print(f"\n{args.threads} threads: geometric mean {statistics.geometric_mean(walls):.2f}, worst {max(walls):.2f};"
          f" processor time {statistics.geometric_mean(cpus):.2f}")
    if failed:
        sys.exit(f"different: {', '.join(failed)}")


if __name__ == "__main__":
    main()
