package forkcall

import (
	"os"
	"strconv"
)

// OwnIDs returns a program that begins by mapping the caller's ids to themselves in the
// child's new user namespace, which needs no privilege (user_namespaces(7)).
func OwnIDs() *Program {
	p := &Program{}
	p.Write("/proc/self/setgroups", "deny")
	p.Write("/proc/self/uid_map", singleID(os.Geteuid()))
	p.Write("/proc/self/gid_map", singleID(os.Getegid()))
	return p
}

// singleID returns the id mapping of one id to itself, in the form of /proc/PID/uid_map.
func singleID(id int) string {
	s := strconv.Itoa(id)
	return s + " " + s + " 1"
}
