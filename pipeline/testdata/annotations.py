"""Checks that DuckDB and pyarrow know the types of annotated columns again.

The first file is what went in; the others have columns of it.
"""
import sys

import duckdb
import pyarrow.parquet as pq

TYPES = {
    "u": "UUID", "id": "UUID", "lo": "UUID", "hi": "UUID", "b": "BLOB", "j": "JSON", "e": "VARCHAR", "k": "VARCHAR",
    "tz": "TIME WITH TIME ZONE", "tm": "TIME WITH TIME ZONE", "us": "TIMESTAMP WITH TIME ZONE", "ms": "TIMESTAMP", "n": "BIGINT",
    "g": "GEOMETRY",
}
ARROW = {"u": "extension<arrow.uuid>", "id": "extension<arrow.uuid>", "lo": "extension<arrow.uuid>", "j": "extension<arrow.json>", "ms": "timestamp[ms]", "us": "timestamp[us, tz=UTC]"}

source = sys.argv[1]
rows = dict(duckdb.sql(f"select u, j from '{source}' where u is not null").fetchall())
if len(rows) != 6 or str(min(rows)) != "00000000-0000-0000-0000-000000000000" or rows[min(rows)] != '{"a": 0}':
    sys.exit(f"{source}: {rows}")
for path in sys.argv[1:]:
    plain = "expression" in path or "mixed" in path
    types = {name: kind for name, kind, *_ in duckdb.sql(f"describe from '{path}'").fetchall()}
    schema = pq.read_schema(path)
    pq.read_table(path)
    for name, kind in types.items():
        if not plain and kind != TYPES.get(name, kind):
            sys.exit(f"{path}: DuckDB reads {name} as {kind}")
        if not plain and name in ARROW and str(schema.field(name).type) != ARROW[name]:
            sys.exit(f"{path}: pyarrow reads {name} as {schema.field(name).type}")
    if types.get("u") == "UUID" and types.get("j") == "JSON":
        for u, j in duckdb.sql(f"select u, j from '{path}' where u is not null").fetchall():
            if rows[u] != j:
                sys.exit(f"{path}: {u} has {j}, not {rows[u]}")
