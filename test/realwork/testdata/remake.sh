# What is made anew shows nothing of what was there.
rm -rf d
[ ! -e d ]
mkdir d
[ -z "$(ls -A d)" ]
rmdir d
echo plain >d
[ "$(cat d)" = plain ]
rm d
mkdir -p d/deep
[ -z "$(ls -A d/deep)" ]
echo new >d/deep/file
[ "$(find . -type f)" = ./d/deep/file ]
echo works
