select 1
select 1 as x, 'a' as y, null as z
select a, b from t where a < 5 order by a desc
select count(*), sum(a), avg(b), min(s), max(dt) from t
select b, count(*) from t group by b order by b nulls first
select b, s, sum(a) from t group by all order by all
select b+1, count(*) from t group by b+1
select b+1 as k, count(*) c from t group by k having c > 3
select b, sum(a) from t group by 1 having sum(a) > 50 order by 2 desc
select * from t where b in (select b from u where n < 10)
select * from t where b not in (select b from u)
select * from t where b not in (select b from u where b is not null)
select * from t where a not in (select a from e)
select a from t where exists (select 1 from u where u.a = t.a)
select a from t where not exists (select 1 from u where u.a = t.a and u.b < t.b)
select a, (select max(n) from u where u.a = t.a) from t
select a, (select count(*) from u where u.a = t.a) from t
select a, (select count(*) from u where u.a > t.a) from t
select a, (select sum(n) from u where u.a < t.a and u.b = t.b) from t
select a, (select s from u where u.n = t.a) from t
select a, (select s from u where u.a = t.a limit 1) is null from t
select a, (select n from u where u.a = t.a order by n desc limit 1) from t
select a, (select n from u where u.a <= t.a order by n desc limit 1) from t
select a, b in (select b from u where u.a = t.a) from t
select a, b = any (select b from u) from t
select a, b > all (select b from u where b is not null) from t
select a, b > any (select b from u where u.a = t.a) from t
select a, b <> all (select b from u) from t
select a, b <> any (select b from u) from t
select a, b = all (select b from u where u.a = t.a) from t
select t.a, u.n from t join u on t.a = u.a
select t.a, u.n from t left join u on t.a = u.a and u.b = 2
select t.a, u.n from t right join u on t.a = u.a
select t.a, u.n from t full join u on t.a = u.a and t.b = u.b
select a, t.b, u.b from t join u using (a)
select a, t.b, u.n from t left join u using (a)
select a, n from t full join u using (a)
select * from t natural join u
select t.a from t semi join u on t.a = u.a
select t.a from t anti join u using (a)
select t.a, u.a from t, u where t.a = u.a and t.b < u.b
select t.a, u.a from t cross join u where t.a + u.a = 20
select t.a, x.n from t, lateral (select n from u where u.a = t.a) x
select t.a, x.n from t left join lateral (select sum(n) n from u where u.a = t.a) x on true
select t.a, x.n from t join (select n, a from u where u.b = t.b) x on x.a = t.a
with c as (select a, b from t where a > 10) select * from c join c d on c.a = d.a
with c(x, y) as (select a, b from t), d as (select x from c where y = 1) select * from d union all select a from u
with recursive r(n) as (select 1 union all select n + 1 from r where n < 20) from r
with recursive r(n) as (select 1 union select n * 3 % 17 from r) from r
with recursive f(i, a, b) as (select 1, 0::hugeint, 1::hugeint union all select i + 1, b, a + b from f where i < 100) select i, a from f
select distinct t.b from t, u where t.a < u.a and t.b >= u.b
select distinct u.s from t join u on t.b = u.b left join u v on v.a = u.a
with w as (select t.a, u.n from t join u on t.b = u.b) select a from t where a in (select a from w) and a not in (select a from w c where c.n > 3 and c.a is not null)
with w as (select t.a from t join u on t.b = u.b) select a, (select count(*) from w) from t where exists (select 1 from w where w.a = t.a)
select b from t intersect select u.b from u join t on u.a = t.a
select count(*) from (select distinct t.b, t.a % 2 from t join u on t.a = u.a where t.b in (select t.b from t join u using (b) order by t.b limit 4)) x
with recursive r(a, d) as (select a, 0 from t where a = 1 union select u.n::int, 0 from r join u on u.a = r.a) from r
with recursive r(a, d) as (select a, 0 from t where a < 3 union all select u.n::int, d + 1 from r join u on u.a = r.a where d < 4) from r
with recursive h(id, depth, path) as (select a, 0, a::varchar from t where a < 2 union all select t.a, depth + 1, path || '/' || t.a from t join h on t.a // 2 = h.id and t.a > 1) from h
with recursive h(id, root) as (select a, a from t where a between 1 and 3 union all select t.a, root from t, h where t.a // 2 = id and t.a > 3) select root, count(*), sum(b) from h join t on a = id group by root
with recursive r(k, s, n) as (select b, sum(a)::bigint, 1 from t group by b union all select k // 2, sum(s)::bigint, n + 1 from r where k > 0 group by k // 2, n) from r
with recursive r(n, m) as (select a, null::bigint from t where a < 5 union all select n + 5, row_number() over (order by n desc) from r where n < 25) from r
with recursive r(n) as (select 1 union all select x.n + y.n from r x, r y where x.n < 50) from r
with recursive r(n) as (select 1 union all select n + 1 from r where n < (select max(u.n) from u) and n in (select a from t)) from r
with recursive r(n) as (select a from e union all select n + 1 from r) from r
with recursive r(n) as (select a from e union all select count(*)::int from r having count(*) = 0) from r
with recursive r(n) as (select 1 union all select n + 1 from r) select * from r limit 7
with recursive r(n) as (select 1 union all select n + 1 from r where n < 4), q(m) as (select n from r union all select m + 10 from q where m < 40) select * from q, r where m = n + 20
with recursive r(n) as (select 1 union select n + 1 from r where n < 6) select a.n, b.n, (select count(*) from r) from r a join r b on a.n = b.n + 2
with recursive r(n, s) as (select 1, 'a' union all select n + 1.5, n from r where n < 9) from r
with recursive r(n) as (select 1 union select null from r) from r
with recursive r(s, n) as (select s, b from t union select s, n + 1 from r where n < 6) from r
with recursive r(n) as (select 0.0::double union (select -n from r union all select 'nan'::double from r)) from r
with recursive r(n) as (select 1 union all (select n + 1 from r where n < 5 union all select n + 10 from r where n < 3)) from r
with recursive r(n) as (select 1 union all (select a from t, r where a > n order by a limit 2)) select n, count(*) from (from r limit 300) group by n
with recursive r(n) as (select 1 union all (with p as (select n + 1 as k from r where n < 4) select x.k from p x, p y)) from r
with recursive r(n) as (select 1 union all select r.n + 1 from r left join r q on r.n = q.n + 1 where r.n < 4 and q.n is null) from r
with recursive r(n) as (select 1 union all select n + 1 from r where n < 9 and exists (select 1 from u where u.a = r.n) and n not in (select b from u where b is not null and u.a = r.n)) from r
with recursive r(n) as (select 1 union all select (select max(u.n) from u where u.a = r.n)::int from r where n < 10) from r
select a, (with recursive r(n) as (select t.a union all select n + 7 from r where n < 30) select sum(n) from r) from t
select a, (with recursive r(n) as (select t.b union select n + t.a % 3 from r where n < 9) select count(n) from r) from t
select t.a, x.n, x.c from t, lateral (with recursive r(n, c) as (select t.a, 0 union all select u.n::int, c + 1 from r join u on u.a = r.n and u.b = t.b where c < 3) from r) x
select a from t where exists (with recursive r(n) as (select t.a union select u.n::int from r join u on u.a = r.n) select 1 from r where n = 20)
select a, (with recursive r(n) as (select t.a union all select max(n) + 9 from r having max(n) < 40) select string_agg(n, ',' order by n) from r) from t
with recursive r(n) as (select 1 union all select (with recursive q(m) as (select r.n union all select m + 1 from q where m < 5) select max(m) from q) + n from r where n < 20) from r
with recursive r(n) as (select 1 union all select n + m from r, (with recursive q(m) as (select 1 union all select m * 2 from q where m < 5) select max(m) m from q) where n < 40) from r
with recursive r(n) as (select 1 union all select n + 1 from r where n < 5), s(n) as (select n from r union all select s.n + 5 from s, r where s.n = r.n) from s
create or replace view v as with recursive r(n) as (select 1 union all select n + 1 from r where n < 5) select n from r where n > 1; select v.n, t.a from v join t on t.a = v.n * 2
with recursive r(n) as not materialized (select 1 union all select n + 1 from r where n < 4) select * from r a, r b where a.n = b.n + 1
with recursive r(n, d) as (select 1, 1.5 union all select n + 1, d * 1.5 from r where n < 4) from r
with recursive r as (select 1 as x, a from t where a = 3 union all select x + 1, a from r where x < 3) from r
with recursive r(n) as (select 1 union all select 2) from r
with recursive r as (select 1 as n union all (with r as (select 5 as k) select k from r)) from r
with recursive r(n) as (select distinct b from t union all (select n + 1 from r where n < 3 intersect select b from u)) from r
with recursive r(n) as (select 1 union all select distinct on (n) n + 1 from r where n < 3) select n, typeof(n) from r
with w as (select b, a % 3 as r, count(*) as n, 'x' as k from t group by all union all select b, n % 2, sum(a), 'y' from u group by all) select p.b, p.n, q.n from w p join w q on p.b = q.b where p.k = 'x' and q.k = 'y' and p.r = 1 and p.n > 1 and q.r in (0, 1)
with w as (select a, b, row_number() over (partition by b order by a, n) as r from u), v as (select a, b, r from w where b < 4 or r = 1) select * from v where b = 2 and r < 3 union all select * from v where b = 1 and a > 2 union all select * from w where b is null or b = 3 and r = 2
with w as (select b, sum(a) as n from t group by b) select * from w where b = 1 / (n - n + 1) union all select * from w where b = 2 or b = 3
select a % 4 as x, b, s, count(*), count(a), sum(a), avg(b), min(s), grouping(x, b, s) from t group by cube (x, b, s)
select a % 4 as x, b, count(*), sum(a * 1.5), max(n) from u group by grouping sets ((x, b), (x), (b), (b), ())
select b, a, count(*), sum(a) from e group by rollup (b, a)
with w as (select b, s, sum(a) as v, grouping(b, s) as g from t group by rollup (b, s)) select x.b, x.v, y.v from w x join w y on x.b = y.b and x.g = 1 and y.g = 0
select a from t union select a from u
select a from t intersect select a from u
select a from t except select a from u
select b from t intersect all select b from u
select b from t except all select b from u
select a, s from t union all by name select s, n as a from u
select a as x from t union all by name select n as y from u
(select a from t order by a limit 3) union all (select a from u order by a desc limit 2)
select distinct b from t
select distinct on (b) b, a from t order by b, a desc
select a, row_number() over (partition by b order by a) from t
select a, sum(a) over (order by a rows between 2 preceding and current row) from t
select a, rank() over (order by b) r from t qualify r <= 3
select b, sum(a), sum(sum(a)) over () from t group by b
select b, rank() over (order by sum(a) desc) from t group by b
select b, s, count(*), grouping(b), grouping(s) from t group by rollup (b, s)
select b, s, count(*) from t group by cube (b, s)
select b, s, count(*) from t group by grouping sets ((b), (s), ())
select b, count(*) from t group by rollup (b) having grouping(b) = 1
select b % 2 as k, grouping(k), count(*) from t group by rollup (k)
select b as k, a % 2 as l, grouping(l, k) from t group by cube (k, l)
values (1, 'a'), (2, null)
select * from (values (1, 'a'), (2, 'b')) v(x, y) where x > 1
select * from range(5)
select * from generate_series(1, 10, 3) g(x)
from t
from t select a where b = 1
select * exclude (s) from t
select * replace (a * 2 as a) from t
select t.* from t join u on t.a = u.a
select a, b from t where (a, b) = (4, 4)
select a, b from t where (a, b) in (select a, b from u)
select a, b from t where (a, b) not in (select a, b from u)
select a from t where a = (select max(a) from u)
select a from t where a > (select avg(a) from u where u.b = t.b)
select sum(a) from t where a < (select count(*) from u)
select (select sum(a) from t) + (select sum(a) from u)
select a, case when exists (select 1 from u where u.a = t.a) then 'x' else 'y' end from t
select a from t where exists (select 1 from u where u.a = t.a) or b = 1
select b, (select count(*) from u where u.b = t.b) from t group by b
select b from t group by b having count(*) > (select count(*) from u where u.b = t.b)
select a from t t1 where a = (select max(a) from t t2 where t2.b = t1.b and exists (select 1 from u where u.a = t2.a))
select a, (select (select max(n) from u where u.a = t.a)) from t
select a, (select max(x) from (select u.n + t.a as x from u where u.b = t.b) y) from t
select a, (select sum(c) from (select b, count(*) c from u where u.a > t.a group by b)) from t
select t1.a from t t1 where t1.b = (select min(b) from u where u.a = t1.a union all select 1 where false)
select a from t order by b desc nulls last, a limit 5 offset 2
select a from t limit 0
select a + 1 as x, x * 2 as y from t
select a as b2 from t where b2 > 30
select count(distinct b), count(distinct s) from t
select string_agg(s, ',' order by a) from t where a < 8
select b, count(*) filter (where a > 10) from t group by b
select count(*) from t where false
select max(a) from t where false group by b
select * from e
select sum(a) from e
select t.a from t where t.a in (1, 2, (select max(a) from u))
select a, lag(a) over w, lead(a) over w from t window w as (partition by b order by a)
select u.a, count(*) from u left join t on u.a = t.a where t.b is null group by u.a
select (select 1), (select null)
select exists (select 1 from e), not exists (select 1 from e)
select a between 1 and (select max(b) from u) from t
select a from t where b is not distinct from (select min(b) from u where u.a = t.a)
select b from t where s like 's%' group by b order by count(*) desc, b limit 2
select coalesce(b, (select max(b) from u)) from t
select a from t where a in (select a from u union select b from u)
select a from t where a in (select n from u where n > (select avg(n) from u v where v.b = u.b))
select x.a from (select a, b from t) as x where x.b = (select max(b) from (select b from u where u.a = x.a) z)
select count(*) from (select distinct a, b from u) x
select count(*) from t t1, t t2, t t3 where t1.a = t2.a and t2.a = t3.a
select b, avg(d) from t group by b
select t.s, u.s from t full outer join u on t.s = u.s and t.a > 20
select a from t where (select count(*) from u where u.a = t.a) > 1
select a from t where not (a in (select a from u)) and not exists (select * from u where u.n = t.a)
select dt, count(*) from t group by dt order by dt
select sum(case when b is null then 1 end) from t
select b, count(*) as n from t group by b order by n desc, b
select a from t where b = 1 union all select a from t where b = 2 order by a
select * from (select a, row_number() over (order by a desc) rn from t) where rn < 4
select a, sum(n) from u group by a order by sum(n) desc, a limit 3
select 'x' || s from t where s > (select min(s) from u)
select a, (select string_agg(s, ',' order by n) from u where u.a = t.a) from t
select t.a from t where (b, s) in ((1, 's1'), (2, 's2'))
select exists(from u where u.a = t.a and n > 10) from t
select a, (select count(*) from u where u.a is not distinct from t.b) from t
select a, (select count(u.b) from u where u.a = t.b) from t
select (select count(*) from u where u.a = t.a and t.b = 1) from t
select a, (select max(n) from u where u.a = t.a group by u.b order by 1 limit 1) from t
select a, (select sum(x) from (select n as x from u where u.a = t.a union all select 1) q) from t
select a, (select count(*) from (select a from u where u.a = t.a intersect select a from u where b = 1) q) from t
select a, (select max(r) from (select row_number() over (order by n) r from u where u.b = t.b) q) from t
select a from t where b in (select b from u where u.a > t.a)
select a from t where b not in (select b from u where u.a > t.a)
select a, b not in (select b from u where u.a > t.a) from t
select t.a, x.c from t, (select count(*) as c from u where u.a = t.a) x
select a, (select u.a from u where u.a = t.a and u.n = (select max(v.n) from u v where v.a = t.a)) from t
select a, sum(a) over w1, count(*) over (w1 rows between 1 preceding and current row) from t window w1 as (partition by b order by a)
select b, rank() over w from t group by b window w as (order by count(*), b)
create macro f(x, y := 2) as x * y + 1; select f(a), f(a, 3) from t where f(b) > 3
create or replace view v as select a, b from t where a > 5; select count(*) from v join v w on v.a = w.b
create temp table tt as select b, count(*) as c from t group by b; select * from tt x join tt y on x.c = y.c
select a, (select t.a + u.n from u where u.n = t.a) from t
select count(*) from t where a > (select avg(a) from t x where x.b = t.b) group by b
select t.a from t left join u on t.a = u.a where u.a is null
select t.a, x.y from t, lateral (select (select 1) y from u where t.a <> u.a and u.n < 0 having true) x
select a, (select (select 2) + 1 from u where t.a < u.a and u.n > 20 having true) from t
select a, exists (select (select 1) from u where t.a < u.a having true) from t
select a, s in (select null from u), (s, a) not in (select x, y from (values (null, 3), (null, 4)) v(x, y)), dt = (select null) from t
select b, s in (select null from u) from t group by all having max(dt) > any (select null) is null
pivot u using sum(n)
select t.a, t.b, v.n, v.s from t left join u v on t.a = v.a and exists (select 1 from u where u.b = t.b and u.n < v.n)
select t.a, t.b, v.n, v.s from t left join u v on t.b in (select u.b from u where u.a = v.a) and (select max(n) from u where u.s = v.s) > t.a
select t.a, t.b, v.n, v.s from t right join u v on t.a = v.a and exists (select 1 from u where u.b = t.b and u.n < v.n)
select t.a, t.b, v.n, v.s from t right join u v on t.b in (select u.b from u where u.a = v.a) and (select max(n) from u where u.s = v.s) > t.a
select t.a, t.b, v.n, v.s from t full join u v on t.a = v.a and exists (select 1 from u where u.b = t.b and u.n < v.n)
select t.a, t.b, v.n, v.s from t full join u v on t.b in (select u.b from u where u.a = v.a) and (select max(n) from u where u.s = v.s) > t.a
select t.a, t.b from t semi join u v on t.a = v.a and exists (select 1 from u where u.b = t.b and u.n < v.n)
select t.a, t.b from t semi join u v on t.b in (select u.b from u where u.a = v.a) and (select max(n) from u where u.s = v.s) > t.a
select t.a, t.b from t anti join u v on t.a = v.a and exists (select 1 from u where u.b = t.b and u.n < v.n)
select t.a, t.b from t anti join u v on t.b in (select u.b from u where u.a = v.a) and (select max(n) from u where u.s = v.s) > t.a
select t.a, v.n from t full join u v on (select t.b = v.b)
select a, (select count(*) from u left join e on (select u.a = t.a)) from t
unpivot (select a, b, s from u) on (a + 100)::varchar, s
select null x union all select cast(1 as boolean)
select null x, 1 y union all select date '2020-01-01', null
select * from (values (date '1992-01-01', 3), ('1992-01-02', '42')) v(x, y)
select null x from t group by null
select * from (select (select null) x union all select true)
pivot u using sum(n) as x, count(*) group by s
select t.a, u.a, (t.b, t.s) = (u.b, u.s), (t.b, t.s) <> (u.b, u.s), (t.b, t.s) < (u.b, u.s), (t.b, t.s) >= (u.b, u.s), (t.b, t.s) in ((u.b, u.s), (1, 's1')), (t.b, t.s) is distinct from (u.b, u.s) from t, u
select t.a, u.n from t join u on (t.b, t.s) = (u.b, u.s)
select a, b from t where (b, a) <= (3, 20) and (b, a) > (null, 5) or (b, s) in ((null, 's2'), (2, null))
select t.a, x.y, x.z, x.c from t left join lateral (select t.s y, 1 z, count(*) c from u) x on t.b = 1
select a, ((select max(a) from u where u.b = t.b), b) in (select a, b from u) from t
select a from t where (((select max(a) from u), (select min(b) from u where u.a = t.a)) in (select a, b from u))
with w as (select a, b from t) select c.a from w c where (((select max(a) from u), (select min(b) from u where c.a >= 3)) in (select bool_and(u.a > 3), max(u.b) from u right join w d on u.a >= u.n group by cube (u.b)))
select x, y from t, lateral (values (cast(t.a as decimal(21, 2)), 1), (2.5, 2), (null, 3)) v(x, y)
select cast(a as decimal(21, 2)) x from t union all select 1.5::decimal(21, 2) union all select 7
select t.b, (with w(x, y) as (select u.a, u.n from u where t.b = u.b) select max(c.x + d.y) from w c join w d on c.x = d.x) from t group by t.b
select b, max(d) filter (where d > 1), count(*) from (values (null, 1), (3, 2), (null, 3), (4, 4), (-2, null)) v(b, d) group by b
select t.a, x.y from t left join lateral (select count(distinct e.s) y from u left join e on true where e.a = t.b group by grouping sets ((u.b), ())) x on true
select a, (select sum(n) from (select u.b, sum(u.n) n from u where u.a = t.a group by cube (u.b)) x) from t
select a, b in (select t.b from u) from t
select a, b in (select t.a + u.b from u), b not in (select t.b + u.a from u where u.b = t.b) from t
select t.a from t left join u on t.a = u.a where t.a not in (select case when true then u.n else e.a end from e)
select a from t where s >= all (select u.s from u where t.a not in (select 1))
select a from t where not exists (select t.b from u join e on u.n = t.a group by u.b)
select a, (select max(v.n) from u join u v on v.a = t.a), (select count(*) from u join u v on v.a is not distinct from t.b) from t
select a, (select count(*) from u right join u v on u.a = t.a), (select count(*) from u left join u v on u.a = t.a and v.b = u.b) from t
select a, (select count(u.b) from u having t.b not in (select 4 from e)) from t
select y, count(*) from (values ('a', 0.5), ('b', null), ('c', 3::hugeint)) v(x, y) group by y
select x.b, y.c from (select b, count(*) c from t group by b) x left join (select b, count(*) c from u group by b) y on x.b is not distinct from y.b
select a from t where a % 2 = 0 and (a in (select a from u) or s in (select s from u where u.b = t.b))
select a, (select count(distinct s) from u where u.b = t.b), (select max(s) from u where u.b < t.b) from t
select (select sum(n) from u where u.a = x.k) from (select distinct b as k from t) x
select a from t where (select max(u.a) from u where u.s = t.s) = (select min(v.a) from u v where v.s = t.s)
select * from (select a from t where a < 3) x, (select n from u where n < 3) y where x.a <> y.n
select a, b, (select count(*) from u where u.a = t.a and u.b = t.b or u.n = t.a) from t
select min(columns(*)) from u
select columns('a|b') + 1 from t
select columns(* exclude (s)) from t
select coalesce(columns('a|b'), columns('a|b')) from t
select * from u pivot (sum(n) for s in ('s1','s2'))
select * from u pivot (sum(n) as sn, max(b) for s in ('s1' as p,'s2') group by a)
select * from u pivot (count(*) for s in ('s1','s2') b in (1,2,null))
select * from u unpivot (v for k in (a, b))
select * from u unpivot include nulls (v for k in (a as 'aa', b))
unpivot u on a, b into name k value v
unpivot u on columns(* exclude (s)) into name k value v
select p.k, sum(v) from (unpivot u on a, b into name k value v) p group by p.k
pivot u on s in ('s1', 's2') using sum(n) group by b
select t.a, x.s from t, lateral (select t.s from u where u.a = t.a order by u.n limit 1) x
select a, (select t.b from u where u.a = t.a order by t.b, n limit 1) from t
select a, (select count(*) from u where u.a = t.a group by t.b) from t
select t.a, t.b, u.n from t asof join u on t.b = u.b and t.a >= u.n
select t.a, t.b, u.n from t asof left join u on t.b = u.b and t.a >= u.n
select t.a, t.b, u.n from t asof left join u on t.b = u.b and t.a > u.n
select t.a, t.b, u.n from t asof left join u on t.b = u.b and t.a < u.n
select t.a, t.b, u.n from t asof left join u on t.b = u.b and u.n >= t.a
select t.a, u.n from t asof join u on t.a >= u.n
select t.a, u.n, u.s from t asof left join u on t.a + 1 >= u.n * 2 and t.b = u.b and t.s is not distinct from u.s
select * from t asof join (select n as a, b, s as us from u) v using (b, a)
select count(*), sum(n) from (select t.a, u.n from t asof left join u on t.b = u.b and t.b >= u.n)
select t.a, u.n from t asof right join u on t.b = u.b and t.a >= u.n
select t.a, u.n from t asof join u on t.b = u.b and t.a >= u.n and u.n < 3 and t.a > 1
select t.a, u.n from t asof left join u on t.b = u.b and t.a >= u.n and u.n < 3 and t.a > 1
select t.a, t.b from t asof anti join u on t.b = u.b and t.a >= u.n and u.n < 3 and t.a > 1
select t.a, t.b from t asof semi join u on t.a >= u.n and u.s is not null and t.b = 20
select t.a, u.n, u.s from t asof full join u on t.b = u.b and t.a >= u.n
select t.a, u.n from t asof full join u on t.a > u.n
select * from t asof right join (select n as a, b, s as us from u) v using (b, a)
select * from t asof full join (select n as a, b, s as us from u) v using (b, a)
select t.a, u.n from t asof join u on t.b = u.b and t.a >= u.n where u.n > 2 and t.a < 5
select t.a, u.n from t asof join u on t.a >= u.n where t.b = u.b
select t.a, u.n from t asof left join u on t.b = u.b and t.a >= u.n where u.n = 2
select t.a, t.b, (select count(*) from u asof join u v on u.b = v.b and u.n > v.n where v.n = t.b) c from t
select t.a, t.b, (select sum(v.n) from t w asof join u v on w.a >= v.n where w.b = t.b) c from t
select t.a, x.n from t, lateral (select v.n from u asof left join (select * from u w where w.n < t.a) v on u.n >= v.n) x
select a, ntile(null) over (order by a), ntile(b) over (order by a), ntile(3) over (order by a) from t where b is null or b > 0
select a, (select s from u where u.b = t.b) from t qualify row_number() over (order by a) < 0
select a, (select n from u where u.n = t.a) as n, rank() over (order by b) as r from t qualify r < 20 and n is not null
select x.a, y.n from (select a from t order by a limit 7) x positional join (select n from u order by n desc) y
select * from (values (1), (2), (3)) v(x) positional join (values ('a'), ('b')) w(y)
create macro less(x, y := 3) as table select a, b from t where a < x and b < y; select * from less(20) union all select * from less(30, y := 2)
create macro most(x) as (select max(n) from u where u.a = x); select a, most(3), most(4 + 1) from t
select (select (select v.s from u v where v.a >= t.b) from e) from t
select exists (select (select n from u)), (select count(*) from (select a, (select n from u) from t))
select a, b from t order by b, a desc limit 45% offset 2
select b, a from t order by 1 desc, 2 limit (select count(*) from e) + (select min(n) + 4 from u where n > 0) offset (select 3)
select sum(a) from (select a from t order by -a limit (select 4)) union all select count(*) from (from u limit 12.5%)
select a from t where a in (select n from u order by n desc limit (select 3)) or a < (select max(n) from (from u limit 10%))
with c as (select 4 k) select a from t order by a limit (select k from c) offset (select k + 1 from c where k > 9)
select (select count(*) from (from u limit null%)), (select count(*) from (from u limit (select null::int)))
select a, sum(a) over w, min(s) over w, first_value(a) over w, nth_value(a, 3) over w from t window w as (order by b, a rows between 2 preceding and 2 following exclude current row)
select a, count(b) over (order by b groups between 1 preceding and unbounded following exclude group), avg(d) over (partition by b order by dt range between unbounded preceding and current row exclude ties) from t
select a, last_value(t.s ignore nulls) over (partition by t.b order by a, n rows between unbounded preceding and unbounded following exclude group), max(n) over (groups current row exclude ties) from t join u using (a) where n < 17
select a, b, (a, b) < any (select a, b from u), (a, b) >= all (select a, b from u), (a, b) <> any (select a, b from u), (a, b) = all (select a, b from u where a > 3) from t
select a from t where (a, b, s) > any (select n, b, s from u where n > 20) or (a, b) <= all (select a, b from e) or not (b, s) < all (select b, s from u)
select (1, null) <> any (select 1, null), (1, null) < any (select 1, 2), (1, 2) = all (select 1, 2 union all select 1, null), (1, 2) > any (select a, b from e)
select column_name from (describe t) union all select column_name from (summarize u) where max > 's'
with d as (describe t), z as (summarize u) select d.column_name, z.max, (select count(*) from (summarize e)) from d join z using (column_name)
select a, s, count(distinct a % 3) over (partition by b), median(a) over (partition by b), sum(distinct a) filter (where a > 2) over (partition by s, b % 2), count(distinct b) over () from t
select a, n, string_agg(s, '-' order by s desc, a) over (partition by b), mode(n % 2) over (partition by n % 3 order by a rows between unbounded preceding and unbounded following), rank() over (partition by b order by a) from t join u using (a, b, s)
select a, approx_count_distinct(a) over (partition by s), round(stddev(d) over (partition by b), 6), avg(distinct a) over (partition by a % 2) from t qualify quantile_disc(a, 0.25) over (partition by b) <= a
select b, count(*), sum(count(distinct a)) over (), count(distinct max(a)) over (partition by b % 2) from t group by b
select (select max(c) from (select count(distinct u.n) over (partition by u.s) c from u where u.b = t.b)) from t
pivot t on s using count(*) group by b
pivot t on b, s in ('s1', 's9', null) using sum(a), coalesce(max(d), 0) as m group by dt
pivot u on b in (select b from t where a > 10 order by a desc) using min(n) + 1 group by s
select s, "0", "3" from (pivot u on b in (0, '3', 'zz') using count(*) filter (where n > 5) group by s)
with c as (from u where n > 9) from (pivot c on a % 3)
select t.a, x from t, generate_series(date '2020-01-01', date '2020-01-04', interval 1 day) s(x) where t.dt = x
select typeof(range), range from range(timestamp '2024-01-31 10:00:00', timestamp '2025-01-01', interval '1 month 1 day 30 minutes')
from generate_series(date '2024-03-01', date '2023-12-01', interval '-20 days') with ordinality as s(d)
select count(*) from range(null) union all select count(*) from range(date '2024-01-01', null, interval 1 day) union all from range('2')
select * from range(3) with ordinality t(x, o) join generate_series(5, 1, -2) with ordinality s(y, o) using (o)
select 'abc'.upper(), (1 + 2).add(3), 'a'.concat('b').upper(), -a.abs(), t.a.multiply(2).subtract(1) from t
select s.upper() u, a.sum(), b.max().divide(2) from t group by s.upper() having a.sum() > 3
select b, (select max(t.a) + count(*) from u where u.b = t.b), (select string_agg(t.s, ',' order by t.a)) from t group by b
select b, (select max(x.a) from (select a from u) x where x.a < max(t.a)) from t group by b having exists (select 1 from u where u.n > min(t.a)) order by (select max(t.a)) desc
select (select sum(a)), (select (select count(distinct t.b))), (select sum(t.a) filter (where t.b > 1) from u limit 1) from t
select u.* not ilike 'N', t.* exclude (a) similar to 'd.*' from t join u on t.a = u.n
select a, (select count(*) from (select n x from u where u.n < t.a) s left join (from u where n <> t.b) y on y.n = (select max(a) from t z where z.a < s.x)) from t
select a, (select sum(coalesce(s.x, 10) * coalesce(y.n, 100)) from (select n x from u where u.n < t.a) s full join (from u where n <> t.b) y on y.n in (select z.a from t z where z.a < s.x + t.b)) from t
select a from t where exists (select 1 from (select n x from u where n = t.a) s anti join (from u where n <> t.b) y on y.n > all (select z.a from t z where z.a < s.x))
select b, round(corr(a, d), 9), round(covar_pop(a, d), 9), round(covar_samp(d, a), 9), round(regr_slope(d, a), 9), round(regr_intercept(a, d), 8), round(regr_r2(a, d), 9), regr_count(a, d) from t group by b
select round(regr_avgx(a, b), 9), round(regr_avgy(a, b), 9), round(regr_sxx(a, b), 7), round(regr_syy(a::double / 3, b), 7), round(regr_sxy(a, b) filter (where a % 3 > 0), 7), round(corr(a, b) filter (where a > 100), 3) from t
select b, round(skewness(a), 8), round(kurtosis(d), 6), round(kurtosis_pop(a::double), 6), round(sem(d), 9), round(geomean(a + 1), 9) from t group by b
select a, round(corr(a, d) over (partition by b), 9), round(covar_samp(a, b) over (), 9), round(skewness(a) over (order by a), 8), round(regr_slope(a, a * a) over (order by a rows 4 preceding), 9) from t
