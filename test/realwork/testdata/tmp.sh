name=$(basename "$BENCH")
[ ! -e "/tmp/outside-$name" ]
for d in /tmp /var/tmp /dev/shm /run; do
	[ "$d" = /run ] && [ "$(id -u)" != 0 ] && continue
	echo inside >"$d/inside-$name"
done
[ "$(stat -c %a /tmp)" = 1777 ]
[ -f "$(mktemp)" ]
echo works
