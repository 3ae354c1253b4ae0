export DEBIAN_FRONTEND=noninteractive
apt-get -q update
apt-get -q -y install hello
dpkg -s hello | grep '^Status: install ok installed'
[ "$(hello -g 'hello, realwork')" = 'hello, realwork' ]
[ -z "$(dpkg --audit)" ]
echo works
