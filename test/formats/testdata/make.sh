#!/bin/bash
# make.sh SNAPFS {btrfs|ext4}: makes a sample with the snapfs of a commit, as root.
# The result is testdata/btrfs.img.zst or ext4.img.zst in the present directory.
set -eu
from=$PWD
S=$1 fs=$2 at=/var/tmp/snapfs-sample
truncate -s "$([[ $fs == btrfs ]] && echo 120M || echo 24M)" img
[[ $fs == btrfs ]] && mkfs.btrfs -q img || mkfs.ext4 -q -O ^has_journal img
mkdir -p $at
mount -o loop,noatime img $at
cd $at
if [[ $fs == btrfs ]]; then btrfs subvolume create w; else mkdir w; fi
mkdir w/src
printf 'one\ntwo\nthree\n' > w/text
printf base > w/src/a
printf gone > w/src/b
ln -s text w/link
chmod 640 w/src/a
export SNAPFS_HOME=$at/state
cd w
"$S" new fix
"$S" exec fix -- sh -c 'printf "one\ntwo\nTHREE\n" > text; rm src/b; printf new > src/c; mkdir d; printf x > d/x'
"$S" snapshot fix first
"$S" exec fix -- sh -c 'printf later > src/c; setfattr -n user.k -v v src/a'
"$S" snapshot fix second
"$S" new other --cpus 1 --memory 512M
"$S" exec other -- sh -c 'printf other > o'
"$S" promote other
"$S" new third
"$S" exec third -- sh -c 'printf third > t; printf ONE > /etc/snapfs-sample'
"$S" apply third t
"$S" fork fix@first again
printf 'ONE\ntwo\nthree\n' > text
"$S" plan fix > /dev/null
if [[ $fs == ext4 ]]; then
	"$S" refresh again || true # one conflict
	"$S" promote fix --mine '**'
fi
sync
cd /
until umount $at; do sleep 1; done
zstd -q -19 --ultra -22 --long=27 "$from/img" -o "$from/$fs.img.zst"
