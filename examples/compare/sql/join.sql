select l_orderkey, o_custkey, o_orderdate, l_partkey, l_extendedprice, l_discount
from lineitem join orders on l_orderkey = o_orderkey
where o_orderdate >= date '1994-01-01' and o_orderdate < date '1996-01-01'
