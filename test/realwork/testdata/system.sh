# What would ruin a machine, and a new file in every corner of it.
echo 127.0.0.9 realwork >>/etc/hosts
chmod 600 /etc/hosts
chown 1:1 /etc/passwd
useradd --create-home realwork
[ "$(stat -c %U ~realwork)" = realwork ]
userdel --remove realwork
mv /var/lib/dpkg /var/lib/dpkg.away
rm -rf /usr/share/doc
touch -d 2001-01-01 /usr/bin
ln -sf /nowhere /etc/localtime
for d in / /boot /etc /home /opt /root /srv /usr/bin /usr/lib /usr/local /var /var/cache /var/log /var/spool "$HOME"; do
	echo mark >"$d/realwork-mark"
done
echo works
