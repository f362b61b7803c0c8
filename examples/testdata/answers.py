"""Writes answers.json: what DuckDB answers to the queries of the examples.

    python examples/testdata/answers.py

The answer of a query is its column names and types, its row count and the sum
of a hash of every row, which does not depend on the order; small answers hold
their values too, in order.
"""

import hashlib
import json
import pathlib

import duckdb

examples = pathlib.Path(__file__).parent.parent
data = examples / "quickstart" / "data"
db = duckdb.connect()
for file in data.glob("*.parquet"):
    db.execute(f"CREATE VIEW {file.stem} AS SELECT * FROM '{file}'")

answers = {}
for query in sorted(examples.glob("compare/sql/*.sql")):
    rel = db.sql(query.read_text())
    columns = [{"name": n, "type": str(t)} for n, t in zip(rel.columns, rel.types)]
    # Values as text, as DuckDB prints them.
    texts = ", ".join(f'CAST("{n}" AS VARCHAR)' for n in rel.columns)
    rows = db.sql(f"SELECT {texts} FROM ({query.read_text()})").fetchall()
    total = 0
    for row in rows:
        line = "|".join("NULL" if v is None else v for v in row)
        total += int.from_bytes(hashlib.md5(line.encode()).digest()[:8], "little")
    answer = {"columns": columns, "rows": len(rows), "hash": f"{total % 2**64:016x}"}
    if len(rows) <= 100:
        answer["values"] = rows
    folder = "tpch" if (examples / "tpch" / f"{query.stem}.yaml").exists() else "etl"
    answers[f"{folder}/{query.stem}"] = answer

out = pathlib.Path(__file__).with_name("answers.json")
out.write_text(json.dumps(answers, indent=1) + "\n")
