package cmdbroker

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/fdsock"
	"github.com/snapfs/snapfs/internal/proc"
	"github.com/snapfs/snapfs/internal/vfs"
	"github.com/snapfs/snapfs/isolate"
)

// A call is what the process at the other end of a connection has executed: normally the stub of a guarded program. A
// process that connects by itself appears with its own program and arguments, and gets the same answer.
type call struct {
	program  string   // the path of the program
	args     []string // at least one
	env      []string
	uid, gid uint32 // on the host
	groups   []uint32
	ignored  uint64 // the signals that it ignores
	by       string // the name of its parent process
	restrictions
}

// restrictions are what a process can take from itself beyond the restrictions of its container. A nested Landlock
// domain is not among them, since no process can see that of another one.
type restrictions struct {
	filters string // the number of seccomp filters
	bounds  string // the capabilities that it can ever have
	root    string // its root directory
}

// restrictionsOf returns the restrictions of the process pid, as if its root directory was that of the container.
func restrictionsOf(pid int) (restrictions, error) {
	status, err := statusOf(pid)
	if err != nil {
		return restrictions{}, err
	}
	return restrictions{status["Seccomp_filters"], status["CapBnd"], "/"}, nil
}

func procFile(pid int, file string) string { return fmt.Sprintf("/proc/%d/%s", pid, file) }

// statusOf returns the fields of /proc/PID/status.
func statusOf(pid int) (map[string]string, error) {
	text, err := vfs.ReadFile(procFile(pid, "status"))
	if err != nil {
		return nil, err
	}
	fields := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok {
			fields[name] = strings.TrimSpace(value)
		}
	}
	return fields, nil
}

var errNoArguments = errors.New("the process has no arguments, or has ended")

// readCall reads the call of the process that has connected. Its ids are those that the kernel noted then. The rest may
// change until it is read, and means what it says: the program gets these arguments, and no others.
//
// If the process has ended, another one of the host may have its number. So the call counts only if the process was one
// of the container whose pid 1 is init, and lives until all is read.
func readCall(conn *fdsock.Conn, init int) (*call, error) {
	pid, uid, gid, err := conn.PeerIDs()
	if err != nil {
		return nil, err
	}
	process, err := proc.Identify(pid)
	if err != nil {
		return nil, err
	}
	c, err := callOf(pid, uid, gid)
	if err == nil && (!descends(pid, init) || !proc.Alive(process)) {
		err = errStranger
	}
	return c, err
}

var errStranger = errors.New("the process has ended, or is none of this sandbox")

// descends reports whether the process init is among the ancestors of the process pid.
func descends(pid, init int) bool {
	const deepest = 10_000 // parents change while they are read
	for range deepest {
		status, err := statusOf(pid)
		if err != nil {
			return false
		}
		if pid, err = strconv.Atoi(status["PPid"]); err != nil || pid <= 1 {
			return false
		}
		if pid == init {
			return true
		}
	}
	return false
}

// callOf reads the call of the process pid, which had these ids when it connected.
func callOf(pid int, uid, gid uint32) (c *call, err error) {
	c = &call{uid: uid, gid: gid}
	if c.program, err = os.Readlink(procFile(pid, "exe")); err != nil {
		return nil, err
	}
	if c.args, err = procStrings(pid, "cmdline"); err == nil && len(c.args) == 0 {
		err = errNoArguments
	}
	if err != nil {
		return nil, err
	}
	if c.env, err = procStrings(pid, "environ"); err != nil {
		return nil, err
	}
	if c.restrictions, err = restrictionsOf(pid); err != nil {
		return nil, err
	}
	if c.root, err = os.Readlink(procFile(pid, "root")); err != nil {
		return nil, err
	}
	status, err := statusOf(pid)
	if err != nil {
		return nil, err
	}
	c.ignored, _ = strconv.ParseUint(status["SigIgn"], 16, 64)
	if fields := strings.Fields(status["Uid"]); len(fields) > 0 && fields[0] == strconv.Itoa(int(uid)) {
		for _, g := range strings.Fields(status["Groups"]) {
			if id, err := strconv.ParseUint(g, 10, 32); err == nil {
				c.groups = append(c.groups, uint32(id))
			}
		}
	}
	if parent, err := strconv.Atoi(status["PPid"]); err == nil {
		name, _ := vfs.ReadFile(procFile(parent, "comm")) // the parent may have ended
		c.by = strings.TrimSpace(string(name))
	}
	return c, nil
}

// How many bytes of arguments, and of environment, a call may have, and how many arguments or variables.
const (
	maxText    = 1 << 20
	maxStrings = 1 << 16
)

// procStrings returns the strings of a file in /proc, cmdline or environ, of the process pid. A process chooses where in its
// memory the strings of these files end (PR_SET_MM_MAP of prctl(2)), so a file can be as large as its whole address
// space. A file beyond the limits above is an error that matches unix.E2BIG.
func procStrings(pid int, file string) ([]string, error) {
	f, err := vfs.OpenAt(unix.AT_FDCWD, procFile(pid, file), unix.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := vfs.ReadFD(int(f.Fd()), maxText+1)
	if err == nil && (len(text) > maxText || bytes.Count(text, []byte{0}) > maxStrings) {
		err = unix.E2BIG
	}
	if err != nil || len(text) == 0 {
		return nil, err
	}
	var list []string
	for s := range bytes.SplitSeq(bytes.TrimSuffix(text, []byte{0}), []byte{0}) {
		list = append(list, string(s))
	}
	return list, nil
}

// ignores reports whether the caller ignores a signal, as nohup(1) does for its command.
func (c *call) ignores(signal unix.Signal) bool { return c.ignored&(1<<(signal-1)) != 0 }

// plain are variables with settings of the terminal and the language, which the caller decides, besides LC_*.
var plain = []string{"TERM", "COLORTERM", "NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "FORCE_COLOR", "COLUMNS", "LINES", "LANG"} //nolint:misspell // names of variables

// given are the variables that the program gets as the command that was started from outside has them.
var given = []string{"HOME", "USER", "LOGNAME", "SHELL", "PATH", "TZ", "TMPDIR", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"}

// personal are the variables among given that are those of one user.
var personal = []string{"HOME", "USER", "LOGNAME", "SHELL", "TMPDIR"}

// identify sets the environment, the user and the groups of the command for the call c.
func (b *Broker) identify(command *isolate.Command, c *call) {
	ids, last := b.o.Container.Level().IDs, b.o.Last()
	command.UID, command.GID = inside(ids, c.uid), inside(ids, c.gid)
	for _, g := range c.groups {
		command.Groups = append(command.Groups, inside(ids, g))
	}
	command.Env = variables(&last, c.env, b.o.Pass, ids != isolate.Same && last.UID != command.UID)
}

// variables returns the environment of a guarded program: from the command last the variables that are given, but for
// those of its user if other is set, and those called as in pass; and from caller, the environment of its caller, those
// that are plain.
func variables(last *isolate.Command, caller, pass []string, other bool) (env []string) {
	for _, kv := range last.Env {
		name, _, _ := strings.Cut(kv, "=")
		if slices.Contains(pass, name) || slices.Contains(given, name) && !(other && slices.Contains(personal, name)) {
			env = append(env, kv)
		}
	}
	for _, kv := range caller {
		name, value, _ := strings.Cut(kv, "=")
		if (slices.Contains(plain, name) || strings.HasPrefix(name, "LC_")) && isPlain(value) && !slices.Contains(pass, name) {
			env = append(env, kv)
		}
	}
	return env
}

// isPlain reports whether the value of a variable is a word, and no path.
func isPlain(value string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_@+"
	return len(value) <= 64 && strings.Trim(value, letters) == "" && !strings.Contains(value, "..")
}

// inside returns the id in the container of the id of the host; 65534, that of nobody, for one that it does not map.
func inside(ids isolate.IDs, id uint32) uint32 {
	const nobody = 65534
	switch {
	case ids == isolate.Same:
		return id
	case id >= ids.Base && id-ids.Base < ids.Size:
		return id - ids.Base
	}
	for i, further := range ids.Further {
		if id == ids.Base+ids.Size+uint32(i) && further != 0 {
			return further
		}
	}
	return nobody
}
