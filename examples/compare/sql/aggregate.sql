select l_orderkey, count(*) as n, sum(l_quantity) as quantity, sum(l_extendedprice) as price
from lineitem group by l_orderkey
