# The index of the real tree must be good for the copy: nothing looks changed.
[ -z "$(git status --porcelain)" ]
[ -z "$(git diff-files)" ]
echo more >>file
git commit -q --no-gpg-sign -am more
git checkout -q -b side HEAD~1
echo other >other
git add other
git commit -q --no-gpg-sign -m other
git merge -q --no-edit -
echo scrap >>file
git stash -q
git stash pop -q
git reset -q --hard
[ "$(git log --oneline | wc -l)" = 4 ]
git fsck --strict
echo works
