package forkcall

import (
	"os"
	"strconv"
)

// OwnIDs returns a program for a child in a new user namespace. It begins with the calls that map the
// caller's user and group id to themselves there, which needs no privilege (user_namespaces(7)).
func OwnIDs() *Program {
	p := &Program{}
	p.Write("/proc/self/setgroups", "deny")
	p.Write("/proc/self/uid_map", singleID(os.Geteuid()))
	p.Write("/proc/self/gid_map", singleID(os.Getegid()))
	return p
}

// singleID returns the id mapping of one user or group id to itself, in the form of /proc/PID/uid_map, for a
// new user namespace.
func singleID(id int) string {
	s := strconv.Itoa(id)
	return s + " " + s + " 1"
}
