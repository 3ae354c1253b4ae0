truncate -s 3M internal/sparse
printf x | dd of=internal/sparse bs=1 seek=2000000 conv=notrunc status=none
ln internal/sparse internal/twin
mkfifo internal/fifo
printf data >"$(printf 'internal/n\373me\n2')"
tar -cf ../all.tar internal link
mkdir by-tar by-pipe
tar -xf ../all.tar -C by-tar
tar -cf - internal link | tar -xf - -C by-pipe
cp -a . ../everything
mv ../everything by-cp
for d in by-tar by-pipe by-cp; do
	tar --compare -f ../all.tar -C "$d"
	[ "$(stat -c %h "$d/internal/sparse")" = 2 ]
	[ "$(readlink "$d/link")" = internal ]
done
echo works
