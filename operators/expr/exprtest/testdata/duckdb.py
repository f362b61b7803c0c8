"""Answers SQL with DuckDB: a JSON request a line of standard input, a JSON answer
a line of standard output.

{"run": [SQL, …]} runs statements that make all tables. {"ask": [{"sql": SQL, "optimize": bool}, …]}
evaluates queries and answers a list of {"types", "rows"}, a row being a list of
texts and nulls, or of {"types", "error", "class"} without types where none are known. {"execute": [SQL, …]} executes
statements, and answers a list of {"error", "class"}, which are missing for one that succeeds; {"reset": true} before
that makes an empty database. Values have one form that both sides can
make from the bits: the bits of floats, the unscaled integer of decimals, dates and
times as the number of their units, BLOBs in hexadecimal digits.
"""
import json
import struct
import sys

import duckdb
import pyarrow as pa


def as_text(t):
    """Whether values of a type are compared as DuckDB's text: those that Arrow lacks, and nested ones."""
    return t in ("HUGEINT", "UHUGEINT", "INTERVAL", "BIGNUM") or t.endswith("]") or t.startswith(("STRUCT(", "MAP("))


def texts(column):
    column = column.combine_chunks()
    t = column.type
    if pa.types.is_date32(t):
        column = column.view(pa.int32())
    elif pa.types.is_timestamp(t) or pa.types.is_time64(t):
        column = column.view(pa.int64())
    if pa.types.is_floating(t):
        return [None if v is None else "nan" if v != v else f"{struct.unpack('<Q', struct.pack('<d', v))[0]:016x}" for v in column.to_pylist()]
    if pa.types.is_decimal(t):
        return [None if v is None else unscaled(v) for v in column.to_pylist()]
    if pa.types.is_binary(t):
        return [None if v is None else v.hex() for v in column.to_pylist()]
    if pa.types.is_boolean(t):
        return [None if v is None else "true" if v else "false" for v in column.to_pylist()]
    return [None if v is None else str(v) for v in column.to_pylist()]


def unscaled(v):
    sign, digits, _ = v.as_tuple()
    n = int("".join(map(str, digits)))
    return str(-n if sign else n)


def answer(con, sql, out):
    relation = con.sql(sql)
    out["types"] = types = [str(t).strip('"') for t in relation.types]
    if any(as_text(t) for t in types):
        columns = [f"c{i}" for i in range(len(types))]
        casts = ", ".join(c + "::VARCHAR" if as_text(t) else c for c, t in zip(columns, types))
        relation = con.sql(f"SELECT {casts} FROM ({sql}) AS q({', '.join(columns)})")
    columns = [texts(c) for c in relation.to_arrow_table().columns]
    out["rows"] = list(zip(*columns))


def connect(statements):
    con = duckdb.connect()
    con.execute("SET threads = 1")
    con.execute("SET timezone = 'UTC'")
    for sql in statements:
        con.execute(sql)
    return con


def main():
    con, statements = connect([]), []
    for line in sys.stdin:
        request = json.loads(line)
        answers = []
        if request.get("run"):
            statements = request["run"]
            for sql in statements:
                con.execute(sql)
        if request.get("reset"):
            con, statements = connect([]), []
        for sql in request.get("execute") or []:
            out = {}
            answers.append(out)
            try:
                con.execute(sql)
            except Exception as e:  # also of Python, about values that it does not have
                out.update({"error": str(e), "class": type(e).__name__})
        for q in request.get("ask") or []:
            out = {}
            answers.append(out)
            try:
                con.execute("PRAGMA enable_optimizer" if q["optimize"] else "PRAGMA disable_optimizer")
                answer(con, q["sql"], out)
            except Exception as e:  # DuckDB cuts messages within characters, and Python lacks some values
                out.update({"error": str(e), "class": type(e).__name__})
                if isinstance(e, (duckdb.InternalException, duckdb.FatalException)):
                    con = connect(statements)  # the database is of no use any more
        print(json.dumps(answers), flush=True)


if __name__ == "__main__":
    main()
