//go:build linux

// Package machine describes the machine that a benchmark runs on: its processors, memory, kernel and disks.
package machine

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/snapfs/snapfs/internal/mount"
)

// Environment describes the machine that a report was measured on, without host name and
// paths.
type Environment struct {
	Date   string `json:"date"`
	Kernel string `json:"kernel"`
	CPU    string `json:"cpu"`
	CPUs   int    `json:"cpus"`
	Memory string `json:"memory"`
	// Disk and Loop are the filesystems of the lab and of its loop image, with their mount
	// options.
	Disk string `json:"disk"`
	Loop string `json:"loop"`
	// Load is the load average before the first measurement; 0 means an idle machine.
	Load   string `json:"load"`
	Go     string `json:"go"`
	Commit string `json:"commit"`
	System string `json:"system"`
	User   string `json:"user"`
}

// Describe returns a description of this machine. dir is the directory in which the benchmark measures. loop
// is the mount point of the filesystem image next to it, or "" if there is none, for the reason noLoop.
func Describe(dir, loop string, noLoop error) Environment {
	e := Environment{
		Kernel: word("/proc/sys/kernel/osrelease"), CPUs: runtime.NumCPU(), Go: runtime.Version(),
		CPU: field("/proc/cpuinfo", "model name"), Memory: field("/proc/meminfo", "MemTotal"),
		System: strings.Trim(field("/etc/os-release", "PRETTY_NAME"), `"`), Load: word("/proc/loadavg"),
		Date: time.Now().UTC().Format("2006-01-02 15:04 MST"),
		Disk: mountOf(dir), Loop: "none", Commit: commit(), User: "root",
	}
	if loop != "" {
		e.Loop = mountOf(loop)
	} else if noLoop != nil {
		e.Loop = "none: " + noLoop.Error()
	}
	if os.Geteuid() != 0 {
		e.User = "ordinary"
	}
	return e
}

// word returns the first word of a file such as /proc/loadavg, or "unknown" if the file cannot be read.
func word(path string) string {
	data, err := os.ReadFile(path)
	if f := strings.Fields(string(data)); err == nil && len(f) > 0 {
		return f[0]
	}
	return "unknown"
}

// field returns the value of the line "name: value" or "name=value" of a file such as /proc/cpuinfo, or
// "unknown".
func field(path, name string) string {
	data, _ := os.ReadFile(path) // missing is unknown
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			return strings.TrimSpace(strings.TrimLeft(rest, " \t:="))
		}
	}
	return "unknown"
}

// mountOf returns the type and the mount options, as text, of the filesystem that holds path.
func mountOf(path string) string {
	mounts, err := mount.List()
	if err != nil {
		return err.Error()
	}
	var best mount.Point
	for _, m := range mounts {
		beneath := m.Path == "/" || m.Path == path || strings.HasPrefix(path, m.Path+"/")
		if beneath && len(m.Path) >= len(best.Path) {
			best = m
		}
	}
	return fmt.Sprintf("%s (%s)", best.Type, best.Options+","+best.SuperOptions)
}

// commit returns the first twelve digits of the commit that the program was built from, with a note about
// uncommitted changes, or "unknown".
func commit() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	rev, dirty := "unknown", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			rev = s.Value[:min(len(s.Value), 12)]
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = " with changes"
		}
	}
	return rev + dirty
}
