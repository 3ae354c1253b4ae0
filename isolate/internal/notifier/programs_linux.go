package notifier

import (
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/vfs"
)

// A seen is a program of a container: the version of its file, its path after symbolic links, and the path of its
// interpreter, "" for none.
type seen struct {
	version           version
	real, interpreter string
}

// A version names a file and its content while the container runs: the kernel sets the time of the last change to its
// clock at each write, and no process sets it to another time.
type version struct {
	dev, ino     uint64
	size         int64
	changed, set int64 // ctime and mtime, in nanoseconds
}

// maxSeen is the greatest number of programs that a [Tree] remembers. With more, it forgets all.
const maxSeen = 4096

// Programs returns the path, after symbolic links, of the program at path that a process in a container executes, and
// those of the interpreters that the kernel starts for a script. It returns none if there is no such regular file.
// Cost: three system calls for a path that it has seen.
func (t *Tree) Programs(path string) (programs []string) {
	const deepest = 5 // as in the kernel (bprm_execve of fs/exec.c)
	for path != "" && len(programs) < deepest {
		program := t.program(path)
		if program.real == "" {
			break
		}
		programs = append(programs, program.real)
		path = program.interpreter
	}
	return programs
}

// program returns the program at path in the container; the zero value if no regular file is there. It reads a file
// again only if its version has changed.
func (t *Tree) program(path string) seen {
	fd := t.openPath(path, true)
	if fd < 0 {
		return seen{}
	}
	defer unix.Close(fd)
	now := time.Now()
	st, err := vfs.Lstat(fd, "")
	if err != nil || !st.IsRegular() {
		return seen{}
	}
	v := version{st.Dev, st.Ino, st.Size, st.CTime.Time().UnixNano(), st.MTime.Time().UnixNano()}
	if known, ok := t.seen[path]; ok && known.version == v {
		return known
	}
	program := seen{v, t.pathOf(fd), interpreterOf(fd)}
	if !st.Settled(now) { // it may change again, and keep its times
		return program
	}
	if t.seen == nil || len(t.seen) >= maxSeen {
		t.seen = map[string]seen{}
	}
	t.seen[path] = program
	return program
}

// interpreterOf returns the path of the program that executes the script that is open as fd (O_PATH), from its first line
// "#!"; "" if the file is no script or cannot be read.
func interpreterOf(fd int) string {
	file, err := unix.Open("/proc/self/fd/"+strconv.Itoa(fd), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0) // waits for no holder of a lease
	if err != nil {
		return "" // it may be executed and not read
	}
	defer unix.Close(file)
	var head [256]byte
	n, err := unix.Read(file, head[:])
	if err != nil {
		return ""
	}
	line, script := strings.CutPrefix(string(head[:n]), "#!")
	words := strings.Fields(strings.SplitN(line, "\n", 2)[0])
	if !script || len(words) == 0 || words[0][0] != '/' {
		return ""
	}
	return words[0]
}
