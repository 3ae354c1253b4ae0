# As Debian does it: a cluster of the system's, under the system's user.
version=$(ls /usr/lib/postgresql | sort -V | tail -n 1)
pg_createcluster "$version" realwork
pg_ctlcluster "$version" realwork start
pg_lsclusters
port=$(pg_lsclusters -h | awk '$2 == "realwork" { print $3 }')
as() { su postgres -s /bin/sh -c "$1"; }
as "createdb -p $port realwork"
as "psql -qp $port realwork -c 'create table t as select generate_series(1, 10000) as n'"
[ "$(as "psql -Atqp $port realwork -c 'select sum(n) from t'")" = 50005000 ]
pg_ctlcluster "$version" realwork restart
[ "$(as "psql -Atqp $port realwork -c 'select count(*) from t'")" = 10000 ]
echo works
