"""Compares results of pipelines with what DuckDB says to the same SQL.

Reads a JSON list of {Seed, SQL, File} from standard input; File is the Parquet
file that the pipeline wrote. Rows are compared as bags.
"""
import json
import sys

import duckdb

con = duckdb.connect()
con.execute("SET threads = 1")
equal = 0
for q in json.load(sys.stdin):
    ours = f"SELECT * FROM read_parquet('{q['File']}')"
    try:
        a = con.execute(f"({q['SQL']}) EXCEPT ALL ({ours})").fetchall()
        b = con.execute(f"({ours}) EXCEPT ALL ({q['SQL']})").fetchall()
    except duckdb.Error as e:
        print(f"GSTREAM_SEED={q['Seed']}\n{q['SQL']}\n{e}")
        continue
    if a or b:
        print(f"GSTREAM_SEED={q['Seed']}\n{q['SQL']}\nDuckDB only: {a[:3]}\nours only: {b[:3]}")
        continue
    equal += 1
print(f"{equal} equal")
