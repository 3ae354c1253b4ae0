# Offline, from the module cache of the home directory, with an empty build cache.
export HOME="$BENCH/home" GOFLAGS="-modcacherw -buildvcs=false" GOPROXY=off GOSUMDB=off GOTOOLCHAIN=local CGO_ENABLED=0
unset GOPATH GOMODCACHE GOCACHE
go build -o program .
[ "$(./program realwork)" = "hello, realwork" ]
go clean -modcache
refused go build -o again .
echo works
