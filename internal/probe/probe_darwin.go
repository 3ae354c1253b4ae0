package probe

import (
	"context"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// SandboxExec is the path of the macOS program that runs a command under a sandbox profile.
const SandboxExec = "/usr/bin/sandbox-exec"

// All returns the probes for the few features that macOS can have, without running them. dir is the directory
// whose filesystem they try.
func All(dir string) []Probe {
	at := place{dir}
	return []Probe{
		{"sandbox profile", "writes and network held by the system's sandbox", "", probeSandboxExec},
		{"reflink", "copies without copying", "", at.probeReflink},
	}
}

func probeSandboxExec(context.Context) Result {
	if err := unix.Access(SandboxExec, unix.X_OK); err != nil {
		return no(SandboxExec + ": " + err.Error())
	}
	return yes("")
}

func (p place) probeReflink(ctx context.Context) Result {
	return p.within(ctx, func(dir string) Result {
		from := filepath.Join(dir, "from")
		if err := os.WriteFile(from, []byte("x"), 0o600); err != nil {
			return unknown(err.Error())
		}
		if err := unix.Clonefile(from, filepath.Join(dir, "to"), 0); err != nil {
			return no("clonefile: " + err.Error())
		}
		return yes("")
	})
}
