# Root becomes others; others do not become root, whatever the set-id bit says.
[ "$(su nobody -s /bin/sh -c 'id -un')" = nobody ]
[ "$(setpriv --reuid nobody --clear-groups id -un)" = nobody ]
cp "$(command -v id)" /usr/local/bin/realwork-id
chmod 4755 /usr/local/bin/realwork-id
[ "$(su nobody -s /bin/sh -c '/usr/local/bin/realwork-id -un')" = nobody ]
refused su nobody -s /bin/sh -c 'su root -c id </dev/null'
echo works
