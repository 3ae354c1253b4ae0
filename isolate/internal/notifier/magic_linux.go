package notifier

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// followed returns the call with the path that it reaches through a link that the kernel has for the calling process:
// its working directory, its root or one of its open files, as in /proc/self/cwd/f and /dev/fd/3. Any other call it
// returns as it is.
func (call Call) followed() Call {
	path := call.Path
	if !strings.HasPrefix(path, "/proc/") && !strings.HasPrefix(path, "/dev/") {
		return call
	}
	switch path {
	case "/dev/stdin":
		path = "/dev/fd/0"
	case "/dev/stdout":
		path = "/dev/fd/1"
	case "/dev/stderr":
		path = "/dev/fd/2"
	}
	if fd, ok := strings.CutPrefix(path, "/dev/fd/"); ok {
		path = "/proc/self/fd/" + fd
	}
	names := strings.Split(path, "/") // "", "proc", "self", "cwd", and what is below
	if len(names) < 4 || names[1] != "proc" || !call.isOwn(names[2]) {
		return call
	}
	link := 1 // the names of the link
	switch names[3] {
	case "cwd", "root":
	case "fd":
		link = 2
	default:
		return call
	}
	names = names[3:]
	if len(names) < link || len(names) == link && call.Act&(Create|Remove|Replace) != 0 {
		return call // it is about the link itself
	}
	target, err := os.Readlink("/proc/" + strconv.Itoa(call.PID) + "/" + strings.Join(names[:link], "/"))
	if err == nil && filepath.IsAbs(target) { // otherwise a pipe or the like
		call.Path, call.raw = filepath.Join(append([]string{target}, names[link:]...)...), ""
	}
	return call
}

// isOwn reports whether a name below /proc in a container is the calling process.
func (call Call) isOwn(name string) bool {
	if name == "self" || name == "thread-self" {
		return true
	}
	if _, err := strconv.Atoi(name); err != nil {
		return false
	}
	status, _ := os.ReadFile("/proc/" + strconv.Itoa(call.PID) + "/status")
	for line := range strings.Lines(string(status)) {
		if ids, ok := strings.CutPrefix(line, "NStgid:"); ok { // its ids from the host's to the innermost namespace's
			all := strings.Fields(ids)
			return len(all) > 0 && all[len(all)-1] == name
		}
	}
	return false
}
