package hostview

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// OpenTree opens the directory path of the container whose first process is a child of the process supervisor, and
// returns the first of the container's ids, or 0 if its ids are the host's. It follows no symbolic link, which the
// container could have made. The caller closes the file. Errors: ENOENT if the container has ended.
func OpenTree(supervisor int, path string) (tree *os.File, base uint32, err error) {
	pid, err := firstProcess(supervisor)
	if err != nil {
		return nil, 0, err
	}
	proc := "/proc/" + strconv.Itoa(pid)
	root, err := unix.Open(proc+"/root", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, 0, &os.PathError{Op: "open", Path: proc + "/root", Err: err}
	}
	defer unix.Close(root)
	how := &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_SYMLINKS,
	}
	fd, err := unix.Openat2(root, path, how)
	if err != nil {
		return nil, 0, &os.PathError{Op: "open", Path: path, Err: err}
	}
	tree = os.NewFile(uintptr(fd), path)
	data, err := os.ReadFile(proc + "/uid_map")
	if err == nil {
		base, err = firstID(data)
	}
	if err != nil {
		return nil, 0, errors.Join(err, tree.Close())
	}
	return tree, base, nil
}

// firstID returns the user id on the host that is 0 inside of a container, from the content of its
// /proc/PID/uid_map; or 0 if none is or the ids are the host's.
func firstID(uidMap []byte) (uint32, error) {
	for line := range bytes.Lines(uidMap) {
		f := strings.Fields(string(line))
		if len(f) == 3 && f[0] == "0" {
			id, err := strconv.ParseUint(f[1], 10, 32)
			if f[2] == "1" {
				return 0, err // the user alone, shown as root
			}
			return uint32(id), err
		}
	}
	return 0, nil
}

// maxDepth is how many generations below a container's supervisor firstProcess searches: the container's
// first process, its command, and the children of that.
const maxDepth = 3

// firstProcess returns a process of the container: the one nearest to its supervisor that has another mount
// namespace and that this user may inspect. An ordinary user may not inspect the container's first process,
// which has the memory of the supervisor, but the programs that it has started (ptrace(2),
// PTRACE_MODE_READ_FSCREDS).
func firstProcess(supervisor int) (int, error) {
	here, err := mountNamespace(supervisor)
	if err != nil {
		return 0, err
	}
	generation := []int{supervisor}
	for range maxDepth {
		var next []int
		for _, pid := range generation {
			next = append(next, childrenOf(pid)...)
		}
		for _, pid := range next {
			if there, err := mountNamespace(pid); err == nil && there != here {
				return pid, nil
			}
		}
		generation = next
	}
	return 0, fmt.Errorf("looking for the container of process %d: %w", supervisor, unix.ENOENT)
}

// childrenOf returns the process ids of the children of all threads of the process pid, from /proc. With it a
// process of a container is found below its supervisor.
func childrenOf(pid int) (children []int) {
	tasks := "/proc/" + strconv.Itoa(pid) + "/task/"
	threads, err := os.ReadDir(tasks)
	if err != nil {
		return nil // the process has ended
	}
	for _, thread := range threads {
		data, err := os.ReadFile(tasks + thread.Name() + "/children")
		if err != nil {
			continue // the thread has ended
		}
		for _, word := range strings.Fields(string(data)) {
			if child, err := strconv.Atoi(word); err == nil {
				children = append(children, child)
			}
		}
	}
	return children
}

func mountNamespace(pid int) (string, error) {
	return os.Readlink("/proc/" + strconv.Itoa(pid) + "/ns/mnt")
}
