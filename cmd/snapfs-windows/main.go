// Command snapfs-windows is snapfs.exe: it passes its command line to the snapfs in a
// distribution of the Windows Subsystem for Linux, with file names translated, and exits with
// the same status.
//
// It is built on every system, so that its tests run on any, with a fake wsl.exe.
package main

import (
	"fmt"
	"io"
	"os"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/run/handover"
	"github.com/snapfs/snapfs/internal/wsl"
)

// The exit statuses of snapfs.exe in addition to those of snapfs (docs/exit-codes.md): those of a shell that
// cannot start a program, or does not find it.
const (
	exitFailed  = 126
	exitMissing = 127
)

func main() { os.Exit(execute(os.Args[1:], os.Stdout, os.Stderr)) }

func execute(args []string, out, stderr io.Writer) int {
	dir, err := os.Getwd()
	if err != nil {
		return fail(stderr, exitFailed, "looking for this directory: "+err.Error())
	}
	if stand := os.Getenv("SNAPFS_WINDOWS_DIR"); stand != "" { // of a test, where there is no such directory
		dir = stand
	}
	place := wsl.Place{Distribution: os.Getenv("SNAPFS_WSL"), Mount: os.Getenv("SNAPFS_WSL_MOUNT")}
	if place.Distribution == "" {
		place.Distribution = wsl.DistributionOf(dir)
	}
	if len(args) == 2 && args[0] == "--to-windows" {
		return toWindows(place, args[1], out, stderr)
	}
	program, err := handover.Find("wsl.exe")
	if err != nil {
		return fail(stderr, exitMissing, "wsl.exe: there is no Windows Subsystem for Linux here", "wsl --install", "https://learn.microsoft.com/windows/wsl/install")
	}
	line, err := place.Command(dir, args)
	if err != nil {
		return fail(stderr, exitFailed, err.Error(), errs.HintsOf(err)...)
	}
	env := []string{"WSL_UTF8=1"} // what wsl.exe itself says can be read
	status, err := handover.Run(program, line, env)
	if err != nil {
		return fail(stderr, exitFailed, "starting "+program+": "+err.Error())
	}
	if status != 0 {
		return explain(place, program, env, status, stderr)
	}
	return 0
}

// explain returns the status with which snapfs.exe exits. If status, that of wsl.exe, means that the
// distribution place has no snapfs, explain prints a hint to stderr. To find out, it starts program, which is
// wsl.exe, with the environment env.
func explain(place wsl.Place, program string, env []string, status int, stderr io.Writer) int {
	there := func(name string) bool {
		status, err := handover.Quietly(program, place.Probe(name), env)
		return err == nil && status == 0
	}
	name := place.Distribution
	if name == "" {
		name = "the default distribution"
	}
	switch {
	case there("snapfs"):
		return status
	case there("sh"):
		return fail(stderr, exitMissing, "snapfs: it is not installed in "+name,
			"in the distribution, in a checkout of snapfs: make build && sudo make install")
	}
	return fail(stderr, exitMissing, "wsl.exe: "+name+" cannot be started", "wsl --list --verbose", "wsl --install")
}

func toWindows(place wsl.Place, name string, out, stderr io.Writer) int {
	path, ok := place.Windows(name)
	if !ok {
		return fail(stderr, exitFailed, name+": which distribution it is in is not said", "set SNAPFS_WSL to one of: wsl --list --quiet")
	}
	fmt.Fprintln(out, path)
	return 0
}

func fail(stderr io.Writer, status int, why string, hints ...string) int {
	fmt.Fprintln(stderr, "snapfs.exe: "+why)
	for _, h := range hints {
		if h != "" {
			fmt.Fprintln(stderr, "hint: "+h)
		}
	}
	return status
}
