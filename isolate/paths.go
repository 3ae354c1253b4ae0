//go:build linux

package isolate

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/isolate/landlock"
	"github.com/snapfs/snapfs/isolate/launch"
)

const (
	executeABI = 2 // the version of Landlock that Spec.Execute needs: an older one always denies renames between directories
	writeABI   = 3 // the version of Landlock that Spec.Writable needs: an older one has no right to truncate
)

// checkPaths returns an error if the kernel's Landlock cannot limit which programs the container may execute or
// which paths it may write (Spec.Execute, Spec.Writable): it is too old, or a tree lies below one of the
// directories that are always writable. Even with [Spec.BestEffort] a container does not start without these
// limits.
func (b *builder) checkPaths() error {
	need := 0
	if b.spec.Execute != nil {
		need = executeABI
	}
	if b.spec.Writable != nil {
		need = writeABI
	}
	if b.host.landlock >= need {
		return b.checkTrees()
	}
	return &errs.Error{
		Op: "allowing paths", Kind: errs.ErrNotSupported,
		Err:   fmt.Errorf("%w: the lists of programs and writable paths require version %d, and this kernel has %d", ErrOldLandlock, need, b.host.landlock),
		Hints: []string{"snapfs doctor"},
	}
}

// checkTrees returns an error if a tree lies below a directory that the container may always write, such as /tmp,
// and not in Spec.Writable, the list of writable paths. Landlock's right to write to a directory holds for every
// mount below it, so the list would not hold for that tree.
func (b *builder) checkTrees() error {
	if b.spec.Writable == nil {
		return nil
	}
	for _, m := range b.spec.Mounts {
		in := func(dir string) bool { return m.Target == dir || strings.HasPrefix(m.Target, dir+"/") }
		above := slices.IndexFunc(AlwaysWritable[:], in)
		if above < 0 || m.ReadOnly || slices.ContainsFunc(b.spec.Writable, in) {
			continue
		}
		return &errs.Error{
			Op: "allowing paths", Path: m.Target, Kind: errs.ErrNotSupported,
			Err:   fmt.Errorf("the list of writable paths cannot hold below %s, which every container may write", AlwaysWritable[above]),
			Hints: []string{"move the directory out of " + AlwaysWritable[above], "or use read-only in place of writable"},
		}
	}
	return nil
}

// allowPaths adds the system calls that let the container execute only the programs of Spec.Execute, and
// write only to the paths of Spec.Writable, by Landlock. With guarded programs pid 1 itself stays outside of these
// limits, and each command enters them (see [builder.confine]).
func (b *builder) allowPaths() {
	if b.spec.Execute == nil && b.spec.Writable == nil {
		return
	}
	b.Stage = "allowing paths"
	rules := landlock.Rules{Execute: b.spec.Execute, Writable: b.spec.Writable, AlwaysWritable: AlwaysWritable[:]}
	if len(b.spec.Guarded) > 0 {
		b.guardedDomains(rules)
		return
	}
	domain := rules.Add(b.Image)
	b.Do(unix.SYS_LANDLOCK_RESTRICT_SELF, b.Of(domain), launch.Num(0))
	b.Do(unix.SYS_CLOSE, b.Of(domain))
}
