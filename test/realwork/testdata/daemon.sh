# It lets go of everything a daemon lets go of, and works on.
setsid sh -c 'trap "" TERM HUP INT; (while :; do echo tick >>ticks; sleep 0.01; done) & exec sleep 86417.5' realwork-daemon </dev/null >/dev/null 2>&1 &
while [ ! -s ticks ]; do sleep 0.01; done
echo works
