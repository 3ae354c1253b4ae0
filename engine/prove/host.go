//go:build linux

package prove

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// hostProbes returns the probes that try to reach processes and files of the host from inside a sandbox. They
// identify a process by its pid on the host and its start time (field 22 of /proc/PID/stat,
// proc_pid_stat(5)), because in a sandbox the pid may belong to another process.
func hostProbes() []Probe {
	return []Probe{
		{Name: "masked", Args: []string{"PATH..."}, plan: planMasked},
		{Name: "passwords", Args: []string{"PATH..."}, plan: planPasswords},
		{Name: "late-secret", Args: []string{"PATH..."}, plan: planMasked},
		{Name: "replaced-secret", Args: []string{"PATH..."}, plan: planReplaced},
		{Name: "state", Args: []string{"PATH..."}, plan: planMasked},
		{Name: "variables", Args: []string{"NAME..."}, plan: planVariables},
		{Name: "read-only", Args: []string{"PATH..."}, plan: planReadOnly},
		{Name: "see-process", Args: []string{"PID", "START"}, plan: planSee},
		{Name: "signal-process", Args: []string{"PID", "START"}, plan: planSignal},
		{Name: "trace-process", Args: []string{"PID", "START"}, plan: planTrace},
		{Name: "pid-1", plan: planPID1},
		{Name: "host-terminal", plan: planHostTerminal},
		{Name: "other-sandbox", Args: []string{"PID", "START", "PATH..."}, plan: planOther},
	}
}

func planMasked(args []string) (attempt, error) {
	return attempt{"read " + strings.Join(args, ", "), func() outcome {
		var seen []string
		for _, path := range args {
			if what := visible(path); what != "" {
				seen = append(seen, path+": "+what)
			}
		}
		if len(seen) > 0 {
			return crossed("%s", strings.Join(seen, "; "))
		}
		return held("nothing is there to be read")
	}}, nil
}

// planReplaced plans a probe that reads files which the host has replaced while the sandbox runs. First the probe lists
// the directory and tries to make something at the name, so that the kernel asks the filesystem again what is there.
func planReplaced(args []string) (attempt, error) {
	a, err := planMasked(args)
	read := a.try
	a.try = func() outcome {
		for _, path := range args {
			_, _ = os.ReadDir(filepath.Dir(path)) // what it returns does not matter
			_ = os.Mkdir(path, 0o700)             // with a mask, this call and the next fail
			_ = os.Symlink(path, path)
		}
		return read()
	}
	return a, err
}

// planPasswords plans a probe that reads files of accounts, as shadow(5) describes them, and looks for a password's
// hash in the second field of each line. In a sandbox of root they must have none.
func planPasswords(args []string) (attempt, error) {
	return attempt{"read the hash of a password in " + strings.Join(args, ", "), func() outcome {
		for _, path := range args {
			text, err := os.ReadFile(path)
			if err != nil {
				continue // it cannot be read
			}
			for line := range strings.Lines(string(text)) {
				fields := strings.Split(line, ":")
				if len(fields) < 2 {
					continue
				}
				switch strings.TrimLeft(fields[1], "!") {
				case "", "*", "x":
				default:
					return crossed("%s: that of %s is read", path, fields[0])
				}
			}
		}
		return held("there is none")
	}}, nil
}

// planVariables plans a probe that looks in the sandbox for environment variables with these names, which the
// process that called snapfs on the host has.
func planVariables(names []string) (attempt, error) {
	return attempt{"read the variables " + strings.Join(names, ", "), func() outcome {
		for _, name := range names {
			if _, there := os.LookupEnv(name); there {
				return crossed("%s is there", name)
			}
		}
		return held("they are not there")
	}}, nil
}

// visible returns a text that says what a probe in the sandbox can read at path, a directory's entries or a
// file's first byte; "" if it can read nothing.
func visible(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return ""
	}
	if info.IsDir() {
		if entries, _ := os.ReadDir(path); len(entries) > 0 {
			return fmt.Sprintf("%d entries are seen", len(entries))
		}
		return ""
	}
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0) // the file may be a pipe
	if err != nil {
		return ""
	}
	defer unix.Close(fd)
	var b [1]byte
	if n, _ := unix.Read(fd, b[:]); n > 0 {
		return "it is read"
	}
	return ""
}

// planReadOnly plans a probe that tries to open the files in args for writing, and to create a file in the
// directories in args. All of them must be read-only in the sandbox.
func planReadOnly(args []string) (attempt, error) {
	return attempt{"write to " + strings.Join(args, ", "), func() outcome {
		var written []string
		for _, path := range args {
			if writable(path) {
				written = append(written, path)
			}
		}
		if len(written) > 0 {
			return crossed("%s can be written to", strings.Join(written, ", "))
		}
		return held("nothing can be written to")
	}}, nil
}

func writable(path string) bool {
	info, err := os.Stat(path)
	if err != nil {
		return false
	}
	if !info.IsDir() {
		return opens(path, unix.O_WRONLY) == nil
	}
	f, err := os.CreateTemp(path, ".prove-")
	if err != nil {
		return false
	}
	f.Close()
	os.Remove(f.Name()) //nolint:errcheck // a leftover is in the sandbox
	return true
}

// planProgram plans a probe that tries to execute the program args[0], which the policy of the sandbox refuses.
func planProgram(args []string) (attempt, error) {
	return attempt{"execute " + args[0], func() outcome {
		p, err := os.StartProcess(args[0], args, &os.ProcAttr{}) //nolint:forbidigo // whether the kernel executes it is the question
		switch {
		case errors.Is(err, unix.EACCES):
			return held("%v", unix.EACCES)
		case err != nil:
			return untried("%v", err)
		}
		_, _ = p.Wait() // its status does not matter
		return crossed("it was executed")
	}}, nil
}

// planArguments plans a probe that tries to execute the program args[0], which ignores its arguments and exits with
// status 0, with another first argument than the policy of the sandbox allows.
func planArguments(args []string) (attempt, error) {
	return attempt{"execute " + args[0] + " with another argument than the rule", func() outcome {
		statusWith := func(argument string) (int, error) {
			p, err := os.StartProcess(args[0], []string{args[0], argument}, &os.ProcAttr{Files: []*os.File{nil, nil, nil}}) //nolint:forbidigo // whether it is executed is the question
			if err != nil {
				return 0, err
			}
			state, err := p.Wait()
			if err != nil {
				return 0, err
			}
			return state.ExitCode(), nil
		}
		const refused = 126
		if status, err := statusWith(AllowedArgument); err != nil || status != 0 {
			return untried("with the argument of the rule: status %d, %v", status, err)
		}
		switch status, err := statusWith("other"); {
		case err != nil:
			return untried("%v", err)
		case status == refused:
			return held("refused, and with the argument of the rule executed")
		}
		return crossed("it was executed")
	}}, nil
}

type process struct {
	pid   int
	start string
}

func theProcess(args []string) (p process, err error) {
	p.pid, err = strconv.Atoi(args[0])
	if err == nil && (p.pid <= 0 || args[1] == "") {
		err = fmt.Errorf("%q is no process", args)
	}
	p.start = args[1]
	return p, err
}

// StartOf returns the start time of the process pid of this pid namespace, as text in the form that probes
// take as an argument. Errors: those of reading /proc.
func StartOf(pid int) (string, error) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return "", err
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 20 {
		return "", fmt.Errorf("/proc/%d/stat ends early", pid)
	}
	return fields[19], nil
}

// same reports whether this pid namespace has a process with the pid and the start time of p, that is,
// whether the host's process is visible here.
func (p process) same() bool {
	start, err := StartOf(p.pid)
	return err == nil && start == p.start
}

// planOther plans a probe that tries to see a process of another sandbox, given by args[0] and args[1], its
// pid and start time on the host, and to read that sandbox's files, args[2:], by their paths on the host.
func planOther(args []string) (attempt, error) {
	p, err := theProcess(args)
	return attempt{fmt.Sprintf("see process %d of another sandbox, or read %s", p.pid, strings.Join(args[2:], ", ")), func() outcome {
		if p.same() {
			return crossed("the process is in /proc")
		}
		for _, path := range args[2:] {
			if what := visible(path); what != "" {
				return crossed("%s: %s", path, what)
			}
		}
		return held("there is no such process, and nothing to be read")
	}}, err
}

func planSee(args []string) (attempt, error) {
	p, err := theProcess(args)
	return attempt{fmt.Sprintf("see process %d of the host", p.pid), func() outcome {
		all, err := filepath.Glob("/proc/[0-9]*")
		if err != nil || len(all) == 0 {
			return untried("/proc lists no process")
		}
		if p.same() {
			return crossed("it is in /proc")
		}
		return held("%d processes are seen, and not that one", len(all))
	}}, err
}

func planSignal(args []string) (attempt, error) {
	p, err := theProcess(args)
	return attempt{fmt.Sprintf("signal process %d of the host", p.pid), func() outcome {
		err := unix.Kill(p.pid, 0) // sends no signal, but checks the permission
		switch {
		case err != nil:
			return held("%v", err)
		case p.same():
			return crossed("it may be signalled")
		}
		return held("the number is another process here")
	}}, err
}

// planTrace plans a probe that tries to read the memory of a process of the host, given by its pid and start time in
// args, like a debugger, without stopping it. It reads an unmapped address, which the kernel checks only after the
// permission.
func planTrace(args []string) (attempt, error) {
	p, err := theProcess(args)
	return attempt{fmt.Sprintf("read the memory of process %d of the host", p.pid), func() outcome {
		err := readMemory(p.pid)
		switch {
		case !letIn(err):
			return held("%v", err)
		case errors.Is(err, unix.ESRCH):
			return held("%v", err)
		case p.same():
			return crossed("it may be traced")
		}
		return held("the number is another process here")
	}}, err
}

func readMemory(pid int) error {
	var b [1]byte
	_, err := unix.ProcessVMReadv(pid, []unix.Iovec{{Base: &b[0], Len: 1}}, []unix.RemoteIovec{{Base: 1, Len: 1}}, 0)
	return err
}

// planPID1 plans a probe that tries to open the /proc entries of the sandbox's pid 1, which belongs to
// snapfs, and to read its memory.
func planPID1([]string) (attempt, error) {
	return attempt{"reach the host through pid 1", func() outcome {
		var seen []string
		for _, path := range []string{"/proc/1/root/", "/proc/1/cwd/", "/proc/1/fd", "/proc/1/map_files"} {
			if _, err := os.ReadDir(path); err == nil {
				seen = append(seen, path)
			}
		}
		for _, path := range []string{"/proc/1/environ", "/proc/1/mem", "/proc/1/exe"} {
			if f, err := os.Open(path); err == nil {
				f.Close()
				seen = append(seen, path)
			}
		}
		if err := readMemory(1); letIn(err) && !errors.Is(err, unix.ESRCH) {
			seen = append(seen, "its memory")
		}
		if len(seen) > 0 {
			return crossed("%s can be opened", strings.Join(seen, ", "))
		}
		return held("nothing of it can be opened")
	}}, nil
}

// planHostTerminal plans a probe that looks for a terminal of the host: among its standard streams, or as its
// controlling terminal. The caller starts the probe without a terminal of the sandbox's own.
func planHostTerminal([]string) (attempt, error) {
	return attempt{"use a terminal of the host", func() outcome {
		for fd := range 3 {
			if _, err := unix.IoctlGetTermios(fd, unix.TCGETS); err == nil {
				return crossed("stream %d is one", fd)
			}
		}
		if opens("/dev/tty", unix.O_RDWR|unix.O_NOCTTY) == nil {
			return crossed("/dev/tty opens")
		}
		return held("the sandbox has none")
	}}, nil
}
