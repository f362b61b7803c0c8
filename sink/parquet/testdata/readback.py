"""Reads Parquet files with DuckDB and with PyArrow and compares every value with
the ones that were written.

usage: readback.py FILE.parquet...

FILE.json beside a file maps a column to its values: null, or a string: integers, dates (days)
and unscaled decimals in base ten, times and timestamps in nanoseconds, floats as
the bits of a double, strings and binaries in hexadecimal.
"""

import decimal
import json
import re
import struct
import sys
import uuid

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

decimal.getcontext().prec = 60  # the default of 28 digits rounds
UNIT = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


def canonical(array):
    """Yields the values of an Arrow array in the form of the JSON file, and how many
    nanoseconds the reader can tell apart."""
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    t = array.type
    if pa.types.is_dictionary(t):
        array, t = array.dictionary_decode(), t.value_type
    if pa.types.is_timestamp(t) or pa.types.is_time(t):
        width = pa.int32() if pa.types.is_time32(t) else pa.int64()
        unit = UNIT[t.unit]
        return [None if v is None else int(v) * unit for v in array.view(width).to_pylist()], unit
    if pa.types.is_date(t):
        return [None if v is None else str(v) for v in array.view(pa.int32()).to_pylist()], 1
    if pa.types.is_decimal(t):
        return [None if v is None else str(int(v.scaleb(t.scale))) for v in array.to_pylist()], 1
    if pa.types.is_floating(t):
        bits = lambda v: "nan" if v != v else str(struct.unpack("<Q", struct.pack("<d", v))[0])
        return [None if v is None else bits(v) for v in array.to_pylist()], 1
    if pa.types.is_boolean(t):
        return [None if v is None else str(int(v)) for v in array.to_pylist()], 1
    if pa.types.is_integer(t):
        return [None if v is None else str(v) for v in array.to_pylist()], 1
    return [None if v is None else raw(v).hex() for v in array.to_pylist()], 1


def raw(value):
    """The bytes of a string, binary or UUID, which DuckDB gives as text."""
    if isinstance(value, str) and re.fullmatch("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", value):
        value = uuid.UUID(value)
    if isinstance(value, uuid.UUID):
        return value.bytes
    return value.encode() if isinstance(value, str) else bytes(value)


def check(reader, table, expected):
    faults = 0
    for name, want in expected.items():
        got, unit = canonical(table.column(name))
        if len(got) != len(want):
            sys.exit(f"{reader}: column {name} has {len(got)} rows, not {len(want)}")
        for row, (g, w) in enumerate(zip(got, want)):
            if isinstance(g, int):
                w = None if w is None else int(w) // unit * unit
            if g != w:
                print(f"{reader}: column {name} ({table.column(name).type}), row {row}: {g}, not {w}")
                faults += 1
                break
    return faults


def check_file(connection, path):
    with open(path.removesuffix(".parquet") + ".json") as f:
        expected = json.load(f)
    duck = connection.execute("select * from read_parquet(?)", [path]).to_arrow_table()
    faults = check("PyArrow", pq.read_table(path, page_checksum_verification=True), expected)
    faults += check("DuckDB", duck, expected)
    # Statistics must not hide a row: every value is found by an equality on it.
    for name, want in expected.items():
        t = pq.read_schema(path).field(name).type
        if pa.types.is_integer(t) and not pa.types.is_boolean(t):
            for v in {w for w in want[:10] if w is not None}:
                n = connection.execute(f'select count(*) from read_parquet(?) where "{name}" = {v}', [path]).fetchone()[0]
                if n != sum(w == v for w in want):
                    print(f"DuckDB: {name} = {v} finds {n} rows, not {sum(w == v for w in want)}")
                    faults += 1
    if faults:
        print(f"{path}: {faults} faults")
    return faults


connection = duckdb.connect()
connection.execute("set timezone = 'UTC'")
sys.exit(1 if sum([check_file(connection, path) for path in sys.argv[1:]]) else 0)
