# Without pip, which pip.sh has: an environment is there in no time.
python3 -m venv --without-pip venv
venv/bin/python -c 'import sys; assert sys.prefix != sys.base_prefix'
. venv/bin/activate
[ "$(command -v python)" = "$PWD/venv/bin/python" ]
echo works
