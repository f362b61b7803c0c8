"""Makes the fixtures beside it with PyArrow and DuckDB.

In encodings-*.parquet every column NAME.ENCODING holds the values of column
NAME, which is PLAIN: the test compares them with each other.
"""

import datetime
import decimal
import os
import random

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

os.chdir(os.path.dirname(os.path.abspath(__file__)))
random.seed(1)
decimal.getcontext().prec = 60  # the default of 28 digits rounds
N = 260


def some_nulls(values):
    return [None if random.random() < 0.15 else v for v in values]


ints = some_nulls([random.choice([random.getrandbits(63), -random.getrandbits(40), i]) for i in range(N)])
small = some_nulls([random.randrange(-(2**31), 2**31) if i % 3 else i for i in range(N)])
words = some_nulls(["" if i % 50 == 0 else f"prefix-{i // 10:04d}-{'ü' * (i % 5)}" for i in range(N)])
fixed = some_nulls([i.to_bytes(9, "big") for i in range(N)])
floats = some_nulls([random.gauss(0, 1e6) for _ in range(N)])
bools = some_nulls([i // 40 % 2 == 0 or random.random() < 0.1 for i in range(N)])

base = {
    "i64": pa.array(ints, pa.int64()),
    "i32": pa.array(small, pa.int32()),
    "s": pa.array(words, pa.string()),
    "f9": pa.array(fixed, pa.binary(9)),
    "f32": pa.array(floats, pa.float32()),
    "f64": pa.array(floats, pa.float64()),
    "d": pa.array([None if v is None else decimal.Decimal(v).scaleb(-2) for v in small], pa.decimal128(12, 2)),
    "b": pa.array(bools, pa.bool_()),
    "required": pa.array(range(N), pa.int64()),
}
encodings = {
    "i64": ["DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT", "DICTIONARY"],
    "i32": ["DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT", "DICTIONARY"],
    "s": ["DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY", "DICTIONARY"],
    "f9": ["DELTA_BYTE_ARRAY", "BYTE_STREAM_SPLIT", "DICTIONARY"],
    "f32": ["BYTE_STREAM_SPLIT", "DICTIONARY"],
    "f64": ["BYTE_STREAM_SPLIT", "DICTIONARY"],
    "d": ["DICTIONARY", "BYTE_STREAM_SPLIT"],
    "b": ["RLE"],
    "required": ["DELTA_BINARY_PACKED", "DICTIONARY"],
}
columns, chosen, dictionary = {}, {}, []
for name, array in base.items():
    columns[name] = array
    chosen[name] = "PLAIN"
    for e in encodings[name]:
        columns[f"{name}.{e}"] = array
        if e == "DICTIONARY":
            dictionary.append(f"{name}.{e}")
        else:
            chosen[f"{name}.{e}"] = e
fields = [pa.field(n, a.type, nullable=not n.startswith("required")) for n, a in columns.items()]
table = pa.table(list(columns.values()), schema=pa.schema(fields))
for version, codec in [("1.0", "none"), ("2.0", "snappy"), ("2.0", "gzip"), ("1.0", "zstd"), ("2.0", "brotli"), ("1.0", "lz4")]:
    pq.write_table(table, f"encodings-v{version[0]}-{codec}.parquet", data_page_version=version, compression=codec,
                   column_encoding=chosen, use_dictionary=dictionary, row_group_size=110, data_page_size=600,
                   write_batch_size=50, write_page_checksum=True)

# A dictionary that is given up inside of a row group, and small row groups
# whose dictionaries differ.
fallback = [f"value {i % 7}" for i in range(300)] + [f"long value number {i}" for i in range(400)]
numbers = [None if i < 20 or i % 11 == 0 else i % 7 if i < 300 else i * 10**9 for i in range(700)]
pq.write_table(pa.table({"s": fallback, "n": numbers}), "fallback.parquet", dictionary_pagesize_limit=600, data_page_size=300,
               write_batch_size=50, row_group_size=500)
pq.write_table(pa.table({"s": [f"group {i // 50} value {i % 5}" for i in range(N)], "n": [i // 50 * 1000 + i % 5 for i in range(N)]}),
               "dictionaries.parquet", row_group_size=50)

# Dictionaries that need codes of 2 bytes together.
pq.write_table(pa.table({"s": [f"group {i // 400} value {i % 90}" for i in range(4000)],
                         "n": [None if i % 13 == 5 else i // 400 * 10**6 + i % 90 for i in range(4000)]}),
               "many-dictionaries.parquet", row_group_size=400)

stamps = [datetime.datetime(1990 + i % 60, 1 + i % 12, 1 + i % 28, i % 24, i % 60, i % 60, i) for i in range(100)]
pq.write_table(pa.table({"t": pa.array(stamps, pa.timestamp("ns"))}), "int96.parquet", use_deprecated_int96_timestamps=True)
pq.write_table(pa.table({"t": pa.array(stamps, pa.timestamp("ns"))}), "int64.parquet", version="2.6")

wide = [None if i % 9 == 0 else decimal.Decimal(i * 10**30 + i).scaleb(-5) * (-1) ** i for i in range(100)]
pq.write_table(pa.table({
    "fixed": pa.array(wide, pa.decimal128(38, 5)),
    "large": pa.array(wide, pa.decimal256(38, 5)).cast(pa.decimal256(38, 5)),
    "int": pa.array([decimal.Decimal(i).scaleb(-2) for i in range(100)], pa.decimal128(9, 2)),
}), "decimals.parquet", store_decimal_as_integer=True)

# A column that two files store in different ways.
prices = pa.table({"price": pa.array([decimal.Decimal(i * 7919).scaleb(-2) for i in range(100)], pa.decimal128(15, 2))})
pq.write_table(prices, "price-integer.parquet", store_decimal_as_integer=True, use_dictionary=False)
pq.write_table(prices, "price-bytes.parquet", use_dictionary=False)

pq.write_table(pa.table({
    "id": list(range(20)),
    "list": [[i, i + 1] for i in range(20)],
    "after": [str(i) for i in range(20)],
    "struct": [{"a": i, "b": {"c": str(i)}} for i in range(20)],
    "half": pa.array([0.5] * 20, pa.float16()),
}), "nested.parquet")

pq.write_table(table.slice(0, 0), "no-rows.parquet")
with pq.ParquetWriter("empty-groups.parquet", pa.schema([pa.field("n", pa.int64())])) as w:
    for k in range(4):
        w.write_table(pa.table({"n": pa.array(range(10 * k) if k % 2 else [], pa.int64())}))
pq.write_table(pa.table({"n": pa.array(range(N), pa.int64())}), "no-statistics.parquet", write_statistics=False)
pq.write_table(pa.table({"n": pa.array(range(N), pa.int64()), "s": [f"{i:05d}" for i in range(N)], "u": pa.array([i * 7919 % N for i in range(N)])}),
               "page-index.parquet", row_group_size=130, write_page_index=True, data_page_size=200, write_batch_size=25, use_dictionary=False)
duckdb.execute("copy (select i, i % 10 as k, 'name ' || (i % 20) as s, i::decimal(9,2) as d, i::hugeint::decimal(38,0) as h, (i % 3 = 0) as b, "
               "timestamptz '2020-01-01 00:00:00+00' + interval (i) hour as t, i::utinyint as u from range(200) t(i)) to 'duckdb.parquet' (row_group_size 100)")
# Repeated values, so that DuckDB writes dictionaries and with them Bloom filters:
# the first row group has the multiples of 4, the second the other even numbers.
duckdb.execute("copy (select k as i, k::integer as n, 'key ' || k as s, k::double as f, k::decimal(9,2) as d, k::hugeint::decimal(38,0) as h, "
               "date '2020-01-01' + k::integer as t, k::uinteger as u from (select (i % 50) * 4 + (i // 2048) * 2 as k from range(4096) r(i)) order by k % 4, k) "
               "to 'bloom.parquet' (row_group_size 2048)")

# A row group without a value, and so without a dictionary page, between two with
# dictionaries.
duckdb.execute("copy (select i, if(j, 'value ' || (i % 5), null) as s, if(j, (i % 7) * 10**12::bigint, null)::bigint as n, if(j, (i % 7) / 4, null)::double as f, "
               "if(j, (i % 3)::decimal(38,2), null) as d, if(j, date '2020-01-01' + (i % 9)::integer, null) as t, if(j, i % 2 = 0, null) as b "
               "from (select i, i // 2048 <> 1 as j from range(6144) r(i))) to 'null-group.parquet' (row_group_size 2048)")

# Statistics and page index of a required, an optional and a text column.
pq.write_table(pa.table({"r": pa.array(range(N), pa.int64()), "o": pa.array([None if i % 20 == 3 else i for i in range(N)], pa.int64()), "s": [f"{i:05d}" for i in range(N)]},
                        schema=pa.schema([pa.field("r", pa.int64(), nullable=False), pa.field("o", pa.int64()), pa.field("s", pa.string())])),
               "statistics.parquet", row_group_size=130, write_page_index=True, data_page_size=200, write_batch_size=10, use_dictionary=False)

# Types that become others: floats of 2 bytes, nulls, decimals of more than 38 digits.
pq.write_table(pa.table({
    "i": pa.array(range(150), pa.int64()),
    "half": pa.array([None if i % 10 == 3 else (i - 75) / 8 for i in range(150)], pa.float16()),
    "nothing": pa.nulls(150),
    "wide": pa.array([None if i % 10 == 4 else decimal.Decimal((i - 75) * 10**44 + i).scaleb(-5) for i in range(150)], pa.decimal256(60, 5)),
}), "types.parquet", row_group_size=50, write_page_index=True, data_page_size=100, write_batch_size=10)
pq.write_table(pa.Table.from_arrays([pa.array([i]) for i in range(5)], names=["a", "a", "A", "a_1", "a"]), "duplicates.parquet")

# Intervals, and columns that cannot be read: those intervals with a converted type that there is not.
duckdb.sql("SELECT range AS id, INTERVAL 1 DAY AS span, range::VARCHAR AS after, [INTERVAL 1 DAY] AS spans FROM range(20)") \
    .write_parquet("intervals.parquet")
duckdb.sql("SELECT INTERVAL 1 DAY AS span FROM range(3)").write_parquet("only-intervals.parquet")
for name, unreadable in [("intervals", "unreadable"), ("only-intervals", "only-unreadable")]:
    with open(name + ".parquet", "rb") as f, open(unreadable + ".parquet", "wb") as out:
        out.write(f.read().replace(b"\x04span\x25\x2a", b"\x04span\x25\x3c").replace(b"element\x25\x2a", b"element\x25\x3c"))
os.remove("only-intervals.parquet")

# Nested columns with nulls and empty lists at each level, in several pages and row groups.
rows = [{"l": None if i % 5 == 0 else [] if i % 4 == 0 else [i, None, i + 1],
         "m": None if i % 7 == 0 else [(f"k{i}", i), ("z", None)],
         "ll": None if i % 6 == 0 else [[{"a": str(i), "b": [i]}, None], [], None, [{"a": None, "b": []}]]} for i in range(300)]
pq.write_table(pa.Table.from_pylist(rows, pa.schema([
    ("l", pa.list_(pa.int64())), ("m", pa.map_(pa.string(), pa.int32())),
    ("ll", pa.list_(pa.list_(pa.struct([("a", pa.string()), ("b", pa.list_(pa.int16()))]))))])),
    "levels.parquet", row_group_size=200, data_page_size=400, write_batch_size=20, compression="snappy")
