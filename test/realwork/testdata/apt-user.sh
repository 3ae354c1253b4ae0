# It needs root, says so, and has no effect.
status=0
said=$(apt-get -q -y install hello 2>&1) || status=$?
echo "$said"
[ "$status" = 100 ]
echo "$said" | grep -q 'are you root'
refused command -v hello
echo works
