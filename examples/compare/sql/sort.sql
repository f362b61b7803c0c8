select * from lineitem order by l_shipdate, l_orderkey
