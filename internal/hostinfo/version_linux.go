package hostinfo

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Before reports whether this kernel is older than Linux major.minor. Use it only for features
// that cannot be probed cheaply and without harm: distributions backport features.
func Before(major, minor int) bool {
	var uts unix.Utsname
	if unix.Uname(&uts) != nil {
		return false
	}
	return before(unix.ByteSliceToString(uts.Release[:]), major, minor)
}

func before(release string, major, minor int) bool {
	var a, b int
	if n, _ := fmt.Sscanf(release, "%d.%d", &a, &b); n < 2 {
		return false
	}
	return a < major || a == major && b < minor
}
