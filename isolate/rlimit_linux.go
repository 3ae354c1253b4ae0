package isolate

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/isolate/launch"
)

// setRlimits sets the resource limits of commands started from now on. No hard limit may be higher than the
// supervisor's own, which would need CAP_SYS_RESOURCE over the host.
func (b *builder) setRlimits(list []Rlimit) error {
	for _, r := range list {
		var own unix.Rlimit
		if err := unix.Getrlimit(r.Resource, &own); err != nil {
			return &errs.Error{Op: "setting the limit " + r.String(), Kind: errs.ErrNotSupported, Err: err}
		}
		if r.Max > own.Max {
			return &errs.Error{
				Op: "setting the limit " + r.String(), Kind: errs.ErrDenied,
				Err:   fmt.Errorf("the hard limit of this process is %s", amount(own.Max)),
				Hints: []string{"sudo prlimit --pid $$ --" + strings.ToLower(rlimitNames[r.Resource]) + "=" + amount(r.Max)},
			}
		}
		if r.Resource != unix.RLIMIT_NPROC {
			continue
		}
		if b.spec.IDs == Same && os.Geteuid() == 0 {
			return &errs.Error{
				Op: "setting the limit " + r.String(), Kind: errs.ErrNotSupported,
				Err: errors.New("the kernel does not apply this limit to root under its own id"),
			}
		}
		b.nproc = &own
	}
	b.rlimits = list
	return nil
}

// limitForks adds the system call that limits how many processes pid 1 may fork. No other limit is set on pid
// 1, because it could kill pid 1 (CPU) or make it miss a request (NOFILE). The hard limit allows a later
// increase.
func (b *builder) limitForks() {
	if b.nproc == nil {
		return
	}
	cur := b.nproc.Cur
	for _, r := range b.rlimits {
		if r.Resource == unix.RLIMIT_NPROC {
			cur = r.Cur
		}
	}
	stage := b.Stage
	b.Stage = "setting limits"
	b.Do(unix.SYS_PRLIMIT64, launch.Num(0), launch.Num(unix.RLIMIT_NPROC), b.Words(cur, b.nproc.Max), launch.Num(0))
	b.Stage = stage
}

// limitCommand adds the system calls by which a command's process sets its own resource limits, just before
// it executes the program. Later steps need no memory or descriptors.
func (b *builder) limitCommand() {
	b.Stage = "setting limits"
	for _, r := range b.rlimits {
		b.Do(unix.SYS_PRLIMIT64, launch.Num(0), launch.Num(r.Resource), b.Words(r.Cur, r.Max), launch.Num(0))
	}
}
