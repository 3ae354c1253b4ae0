package probe

import (
	"context"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// SandboxExec is the program that runs another under a profile of the system's sandbox.
const SandboxExec = "/usr/bin/sandbox-exec"

// All lists all probes: as on Linux, those few powers that this system can have.
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
