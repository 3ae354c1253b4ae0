# By hard links within the workspace, by copying to /tmp, and over the pipes of a transport.
# An overlay in a user namespace cannot read file handles, and so gives a link to
# a file of the real tree another inode number than that file; git sees that.
[ "$(id -u)" = 0 ] && how= || how=--no-hardlinks
git clone -q $how . ../by-link
git clone -q . /tmp/by-copy
git clone -q --no-local . ../by-pack
for d in . ../by-link /tmp/by-copy ../by-pack; do
	git -C "$d" gc -q --prune=now
	git -C "$d" fsck --strict
	[ "$(git -C "$d" rev-parse HEAD)" = "$(git rev-parse HEAD)" ]
	[ -z "$(git -C "$d" status --porcelain)" ]
done
git pack-refs --all
echo works
