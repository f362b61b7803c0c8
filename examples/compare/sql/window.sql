select l_suppkey, l_shipdate, l_orderkey, l_linenumber, l_extendedprice,
       sum(l_extendedprice) over (partition by l_suppkey order by l_shipdate, l_orderkey, l_linenumber) as so_far,
       l_shipdate - lag(l_shipdate) over (partition by l_suppkey order by l_shipdate, l_orderkey, l_linenumber) as since,
       row_number() over (partition by l_suppkey, l_shipdate order by l_extendedprice desc, l_orderkey, l_linenumber) as place
from lineitem
qualify place <= 2
