# mv copies where the kernel answers EXDEV; root's sandboxes rename.
if [ "$(id -u)" = 0 ]; then
	inode=$(stat -c %i d)
	python3 -c 'import os; os.rename("d", "e")'
	[ "$(stat -c %i e)" = "$inode" ]
else
	mv d e
fi
[ ! -e d ]
[ "$(cat e/deep/file)" = real ]
[ "$(readlink e/deep/link)" = file ]
mkdir d
[ -z "$(ls -A d)" ]
mv e/deep d/deep
[ "$(cat d/deep/file)" = real ]
[ ! -e e/deep ]
echo works
