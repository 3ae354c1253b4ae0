# Two writers at once on the real tree's database, which stays in WAL mode.
[ "$(sqlite3 real.db 'pragma journal_mode')" = wal ]
write() {
	for i in $(seq 100); do echo "insert into t values ($i);"; done | sqlite3 -cmd '.timeout 20000' real.db
}
write &
first=$!
write
wait $first
[ "$(sqlite3 real.db 'select count(*) from t')" = 201 ]
sqlite3 real.db 'pragma wal_checkpoint(truncate); vacuum;'
[ "$(sqlite3 real.db 'pragma integrity_check')" = ok ]
echo works
