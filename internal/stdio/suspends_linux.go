package stdio

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/vfs"
)

// Suspends reports whether key is the suspend key (ctrl-z) of the terminal pty, and pressing it would stop
// nothing there. That is so if the command that leads the session is itself in the foreground, and not a job
// of a shell, and ignores or handles no SIGTSTP. The caller then suspends snapfs instead.
func Suspends(pty *os.File, key byte) bool {
	if key >= ' ' {
		return false
	}
	mode, err := unix.IoctlGetTermios(int(pty.Fd()), unix.TCGETS)
	if err != nil || mode.Lflag&unix.ISIG == 0 || key == 0 || key != mode.Cc[unix.VSUSP] {
		return false
	}
	group, err := unix.IoctlGetInt(int(pty.Fd()), unix.TIOCGPGRP)
	if err != nil {
		return false
	}
	session, err := unix.Getsid(group)
	status, serr := vfs.ReadFile("/proc/" + strconv.Itoa(group) + "/status")
	if err != nil || serr != nil || session != group {
		return false
	}
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":\t")
		if name != "SigIgn" && name != "SigCgt" {
			continue
		}
		if mask, err := strconv.ParseUint(value, 16, 64); err != nil || mask&(1<<(unix.SIGTSTP-1)) != 0 {
			return false
		}
	}
	return true
}
