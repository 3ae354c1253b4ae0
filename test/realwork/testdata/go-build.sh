# Online, by the profile go-build, with an empty module cache.
export HOME="$BENCH/home" GOFLAGS="-mod=mod -modcacherw -buildvcs=false" GOTOOLCHAIN=local CGO_ENABLED=0
unset GOPATH GOMODCACHE GOCACHE
cat >go.mod <<'T'
module profiled

go 1.24

require rsc.io/quote v1.5.2
T
cat >main.go <<'T'
package main

import (
	"fmt"

	"rsc.io/quote"
)

func main() { fmt.Println(quote.Hello()) }
T
go build -o profiled .
[ -n "$(./profiled)" ]
echo works
