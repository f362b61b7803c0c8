select k, count(*) as n from strings group by k
