"""Writes cases.tsv: expressions with the type and the values that DuckDB gives.

Usage: python cases.py > cases.tsv, with DuckDB 2.0 installed. The lines are
expression, type, and one value a row of the table below, separated by tabs; an
expression that fails has the type ERROR. \\N is null.
"""
import duckdb
import sys
from pathlib import Path

TABLE = """
create table t(i8 tinyint, i16 smallint, i32 integer, i64 bigint, u8 utinyint, u16 usmallint, u32 uinteger, u64 ubigint,
  f32 float, f64 double, d4 decimal(4,2), d15 decimal(15,2), d18 decimal(18,6), d38 decimal(38,10),
  dt date, ts timestamp, tm time, tn timestamp_ns, bo boolean, s varchar, bl blob,
  h hugeint, di date, ti timestamp, tms timestamp);
insert into t values
 (1, 2, 7, 70, 2, 3, 4, 5, 1.5, 2.25, 1.25, 100.05, 3.141592, 12345678901234567890.0123456789,
  '1994-01-31', '1994-01-31 10:11:12.5', '10:11:12.123', '1994-01-31 10:11:12.123456789', true, 'abc', 'ab',
  91, 'infinity', 'infinity', '2020-01-01 00:00:00.5'),
 (-5, -300, -70000, -5000000000, 200, 60000, 4000000000, 18000000000000000000, -0.25, -1e10, -99.99, -12345678.90, -0.000001, -0.5,
  '1969-12-31', '1969-12-31 23:59:59.999999', '00:00:00', '2001-02-03 04:05:06', false, 'Äöü %_x', '\\x00\\xFF',
  -170141183460469231731687303715884105728, '-infinity', '-infinity', '1969-12-31 23:59:59.999'),
 (0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, '2000-02-29', '2016-02-29 00:00:00', '23:59:59.999999', '1970-01-01 00:00:00', true, '', '',
  0, '5881580-07-10', '294247-01-10 04:00:54.775806', '2020-01-01 00:00:00'),
 (null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null),
 (100, 30000, 2000000000, 4000000000000000000, 9, 8, 7, 6, 1e10, 0.1, 10.01, 9999999.99, 123456789012.000001, 1,
  '2024-12-30', '2024-12-30 12:00:00', '12:00:00', '2024-12-30 12:00:00.5', false, '  Green forest  ', 'xyz',
  170141183460469231731687303715884105727, '2020-02-29', '2020-02-29 10:11:12.131415', '2020-02-29 10:11:12.131');
"""


def main():
    con = duckdb.connect()
    con.execute(TABLE)
    con.execute("set timezone = 'UTC'")
    for line in Path(__file__).with_name("cases.txt").read_text().splitlines():
        e = line.strip()
        if not e or e.startswith("#"):
            continue
        try:
            typ = con.execute(f"select typeof({e}) from t").fetchall()[0][0]
            rows = con.execute(f"select ({e})::varchar from t").fetchall()
        except (duckdb.Error, UnicodeDecodeError):  # an error may cite half a character
            print(f"{e}\tERROR")
            continue
        values = ["\\N" if r[0] is None else r[0].replace("\t", "\\t") for r in rows]
        print("\t".join([e, typ.strip('"')] + values))


sys.exit(main())
