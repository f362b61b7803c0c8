select l_orderkey, l_partkey, l_suppkey, l_quantity, l_extendedprice * (1 - l_discount) as revenue, l_shipdate
from lineitem where l_shipdate >= date '1995-01-01'
