# In an environment of its own, then where this user's Python keeps packages.
python3 -m venv venv
venv/bin/pip install --no-cache-dir six
venv/bin/python -c 'import six; assert six.PY3'
PIP_BREAK_SYSTEM_PACKAGES=1 python3 -m pip install --no-cache-dir --force-reinstall --root-user-action=ignore six
python3 -c 'import six; print(six.__file__)'
echo works
