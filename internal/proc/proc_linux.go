package proc

import (
	"bytes"
	"errors"
	"io/fs"
	"strconv"
	"strings"

	"github.com/snapfs/snapfs/internal/mount"
	"github.com/snapfs/snapfs/internal/vfs"
)

// Identify returns the process that has this pid now, without the id of the boot. Errors match fs.ErrNotExist
// if there is none. A zombie still has its pid.
func Identify(pid int) (Process, error) {
	stat, err := vfs.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return Process{}, err
	}
	_, start, err := parseStat(stat)
	return Process{PID: pid, Start: start}, err
}

// Alive reports whether exactly this process still runs. A zombie does not. If the system does
// not report it, Alive returns true, because a caller must not free what the process might
// still use.
func Alive(p Process) bool {
	if p.Boot != "" {
		if boot, err := BootID(); err == nil && boot != p.Boot {
			return false
		}
	}
	stat, err := vfs.ReadFile("/proc/" + strconv.Itoa(p.PID) + "/stat")
	if err != nil {
		return !gone(err)
	}
	state, start, err := parseStat(stat)
	if err != nil {
		return true
	}
	return start == p.Start && state != 'Z' && state != 'X'
}

// Stopped reports whether exactly this process is stopped by SIGSTOP or another stop signal.
// It returns false if the system does not report it.
func Stopped(p Process) bool {
	stat, err := vfs.ReadFile("/proc/" + strconv.Itoa(p.PID) + "/stat")
	if err != nil {
		return false
	}
	state, start, err := parseStat(stat)
	return err == nil && start == p.Start && state == 'T'
}

func bootID() (string, error) {
	id, err := vfs.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(id)), err
}

// parseStat returns the state and the start time in the content of /proc/PID/stat. It counts
// fields from the last ')', because the second field, the program's name in parentheses, may
// contain blanks and parentheses.
func parseStat(stat []byte) (state byte, start uint64, err error) {
	end := bytes.LastIndexByte(stat, ')')
	fields := strings.Fields(string(stat[end+1:]))
	if end < 0 || len(fields) < 20 {
		return 0, 0, errors.New("/proc/PID/stat: not understood")
	}
	start, err = strconv.ParseUint(fields[19], 10, 64)
	return fields[0][0], start, err
}

// gone reports whether err, of reading a file in /proc/PID, means that the process does not exist: ENOENT, or
// ESRCH if it ends while it is being read.
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, mount.ErrNoProcess)
}
