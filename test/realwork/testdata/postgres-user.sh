PATH="$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -n 1):$PATH"
initdb -D data >initdb.log
pg_ctl -D data -w -l log -o "-k /tmp -c listen_addresses=127.0.0.1" start || { cat log; exit 1; }
psql -qh /tmp postgres -c 'create table t as select generate_series(1, 10000) as n'
[ "$(psql -Atqh 127.0.0.1 postgres -c 'select sum(n) from t')" = 50005000 ]
pg_ctl -D data -w -l log restart
[ "$(psql -Atqh /tmp postgres -c 'select count(*) from t')" = 10000 ]
pg_ctl -D data stop
echo works
