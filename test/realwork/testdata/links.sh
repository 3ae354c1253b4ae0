# Links made inside are links; of the real ones, a and b, the content is kept.
[ "$(cat b)" = real ]
echo inside >>a
ln a c
echo more >>c
[ "$(stat -c %i a)" = "$(stat -c %i c)" ]
[ "$(tail -n 1 a)" = more ]
rm a
[ "$(head -n 1 c)" = real ]
echo works
