"""Writes files with metadata, or checks what jobs have made of it."""
import json
import sys

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

folder = sys.argv[2]
geo = {"version": "1.0.0", "primary_column": "geom", "columns": {
    "geom": {"encoding": "WKB", "geometry_types": ["Point"], "crs": {"id": {"authority": "EPSG", "code": 2056}}, "bbox": [1, 2, 1, 2]},
    "other": {"encoding": "WKB", "geometry_types": []}}}
point = bytes.fromhex("0101000000000000000000f03f0000000000000040")

if sys.argv[1] == "write":
    times = pa.array([0, 10**6, 2 * 10**6], pa.timestamp("us", tz="Europe/Zurich"))
    table = pa.table({"t": times, "c": pa.array(["a", "b", "a"]).dictionary_encode(), "i": [1, 2, 3], "key": [10, 20, 30]})
    about = {"index_columns": ["key", {"kind": "range", "start": 0, "stop": 3, "step": 1}], "column_indexes": [], "pandas_version": "3.0.0", "columns": [
        {"name": n, "field_name": n, "pandas_type": "x", "numpy_type": "y", "metadata": None} for n in table.column_names]}
    point_type = pa.field("geom", pa.binary(), metadata={"ARROW:extension:name": "geoarrow.wkb", "ARROW:extension:metadata": "{}"})
    table = table.append_column(point_type, pa.array([point] * 3)).append_column("other", pa.array([point] * 3))
    table = table.replace_schema_metadata({"pandas": json.dumps(about), "geo": json.dumps(geo), "author": "me"})
    pq.write_table(table, folder + "/in.parquet")
    pq.write_table(pa.table({"k": [1, 2], "v": ["x", "y"]}), folder + "/dim.parquet")
    zones = pa.table({"n": pa.array([[1], [2], [3]]), "t": times, "i": [1, 2, 3], "s": times.cast(pa.timestamp("s", tz="+03:30")),
        "l": pa.array(["a", "b", "c"], pa.large_string()), "b": pa.array([b"a", b"b", b"c"], pa.large_binary()),
        "plain": times.cast(pa.timestamp("us", tz="UTC")), "u": pa.array([bytes(16)] * 3, pa.binary(16))})
    pq.write_table(zones, folder + "/zones.parquet")
    sys.exit()


def check(name, want, got):
    if want != got:
        sys.exit(f"{name}: {got} instead of {want}")


def pairs(name):
    found = pq.read_metadata(f"{folder}/{name}.parquet").metadata or {}
    return {k.decode(): v.decode() for k, v in found.items()}


def pandas(name):
    about = json.loads(pairs(name)["pandas"])
    return about["index_columns"], [c["name"] for c in about["columns"]]


for name in ("copy", "filter"):
    schema = pq.read_schema(f"{folder}/{name}.parquet")
    check(name, "Europe/Zurich", schema.field("t").type.tz)
    check(name, True, pa.types.is_dictionary(schema.field("c").type))
    check(name, "me", pairs(name)["author"])
    check(name, (["key"], ["t", "c", "i", "key"]), pandas(name))
    check(name, ["geom", "other"], sorted(json.loads(pairs(name)["geo"])["columns"]))
    check(name, False, "bbox" in pairs(name)["geo"])

check("select", (["key"], ["i", "key"]), pandas("select"))
check("order", (["key"], ["t", "c", "i", "key"]), pandas("order"))
check("select", {"pandas", "geo", "author", "ARROW:schema"}, set(pairs("select")))
check("select", b"geoarrow.wkb", pq.read_schema(folder + "/select.parquet").field("shape").metadata[b"ARROW:extension:name"])
found = json.loads(pairs("select")["geo"])
check("select", ("shape", ["shape"], 2056), (found["primary_column"], list(found["columns"]), found["columns"]["shape"]["crs"]["id"]["code"]))

check("second", ("other", ["other"]), (json.loads(pairs("second")["geo"])["primary_column"], list(json.loads(pairs("second")["geo"])["columns"])))
check("computed", {}, pairs("computed"))
check("order", {"pandas", "author", "geo", "ARROW:schema"}, set(pairs("order")))
schema = pq.read_schema(folder + "/order.parquet")
check("order", ["c", "t", "i", "geom", "other", "key"], schema.names)
check("order", ("Europe/Zurich", True), (schema.field("t").type.tz, pa.types.is_dictionary(schema.field("c").type)))
schema = pq.read_schema(folder + "/zones-out.parquet")
check("zones", ["twice", "i", "moment", "s", "l", "b", "plain", "u", "t"], schema.names)
check("zones", ["Europe/Zurich", "+03:30", "UTC", "Europe/Zurich"], [schema.field(n).type.tz for n in ("moment", "s", "plain", "t")])
check("zones", (pa.large_string(), pa.large_binary(), pa.int64()), tuple(schema.field(n).type for n in ("l", "b", "twice")))
check("zones", [2, 4, 6], pq.read_table(folder + "/zones-out.parquet")["twice"].to_pylist())
check("zones", str(pq.read_table(folder + "/zones.parquet")["t"].to_pylist()), str(pq.read_table(folder + "/zones-out.parquet")["moment"].to_pylist()))
check("joined", {"mine": "yes"}, pairs("joined"))
check("given", ("you", "2", True), (pairs("given")["author"], pairs("given")["run"], "ARROW:schema" in pairs("given")))
check("given", {b"author": b"you", b"run": b"2"}, {k: v for k, v in duckdb.sql(f"select key, value from parquet_kv_metadata('{folder}/given.parquet')").fetchall() if k in (b"author", b"run")})
for name in ("copy", "filter", "select", "second", "computed", "order", "joined", "given"):
    duckdb.sql(f"select * from '{folder}/{name}.parquet'").fetchall()
    pq.read_table(f"{folder}/{name}.parquet")
for part in ("k=1", "k=2"):
    found = pq.read_metadata(f"{folder}/parts/{part}/part-00000.parquet").metadata or {}
    check("parts", b"me", found[b"author"])
    schema = pq.read_schema(f"{folder}/parts/{part}/part-00000.parquet")
    check("parts", (["t", "c", "i", "key", "geom", "other"], "Europe/Zurich"), (schema.names, schema.field("t").type.tz))
