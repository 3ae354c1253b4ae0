package proc

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"github.com/snapfs/snapfs/internal/mount"
)

// Identify returns the process that has this pid now, without its boot. Errors match
// fs.ErrNotExist if there is none. A zombie still has its pid.
func Identify(pid int) (Process, error) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return Process{}, err
	}
	_, start, err := parseStat(stat)
	return Process{PID: pid, Start: start}, err
}

// Alive reports whether exactly this process still runs. A zombie does not. The answer is true
// if the system does not report it, as a caller must not free what the process might still
// use.
func Alive(p Process) bool {
	if p.Boot != "" {
		if boot, err := BootID(); err == nil && boot != p.Boot {
			return false
		}
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(p.PID) + "/stat")
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
// false if the system does not report it.
func Stopped(p Process) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(p.PID) + "/stat")
	if err != nil {
		return false
	}
	state, start, err := parseStat(stat)
	return err == nil && start == p.Start && state == 'T'
}

// BootID names the present boot of this machine.
func BootID() (string, error) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(id)), err
}

// parseStat gets the state and the start time out of /proc/PID/stat. The
// second field is the program's name in parentheses, and the name may hold
// blanks, parentheses and newlines: fields are counted from the last ')'.
func parseStat(stat []byte) (state byte, start uint64, err error) {
	end := bytes.LastIndexByte(stat, ')')
	fields := strings.Fields(string(stat[end+1:]))
	if end < 0 || len(fields) < 20 {
		return 0, 0, errors.New("/proc/PID/stat: not understood")
	}
	start, err = strconv.ParseUint(fields[19], 10, 64)
	return fields[0][0], start, err
}

// gone: ENOENT, or ESRCH when the process ends while it is being read.
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, mount.ErrNoProcess)
}
