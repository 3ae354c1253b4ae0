package notifier

import (
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Programs returns the path, after symbolic links, of the program at path that a process in a container executes, and
// those of the interpreters that the kernel starts for a script. It returns none if there is no such regular file. root
// is a descriptor of the container's root directory.
func Programs(root int, path string) (programs []string) {
	const deepest = 5 // as in the kernel (bprm_execve of fs/exec.c)
	for ; path != "" && len(programs) < deepest; path = interpreter(root, path) {
		program, found := entryAt(root, path, true)
		if !found || program.kind != unix.S_IFREG {
			break
		}
		programs = append(programs, program.path)
	}
	return programs
}

// interpreter returns the path of the program that executes the script at path in the container, from its first line
// "#!"; "" if the file is no script or cannot be read. root is a descriptor of the container's root directory.
func interpreter(root int, path string) string {
	fd, kind := openPath(root, path, true)
	if fd < 0 {
		return ""
	}
	defer unix.Close(fd)
	if kind != unix.S_IFREG {
		return ""
	}
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
