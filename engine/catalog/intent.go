package catalog

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/snapfs/snapfs/internal/kernel"
)

// An Intent says that a process is in the middle of something that must be
// mended if it dies. It is one symbolic link, made and removed by one system
// call each, whose target is "WHAT NAME".
type Intent struct {
	// What is being done, and Name the sandbox it is done to.
	What, Name string
	// Owner is the process that does it.
	Owner kernel.Process
	path  string
}

// What a command can be in the middle of.
const (
	Making   = "making"   // a sandbox: until its record says ready; an ephemeral one: until it is gone
	Removing = "removing" // from the trash
	Keeping  = "keeping"  // the namespaces of a sandbox
)

var serial atomic.Uint64

// Begin records an intent of this process. Cost: one system call.
func (c *Catalog) Begin(what, name string) (*Intent, error) {
	self, err := kernel.Self()
	if err != nil {
		return nil, fmt.Errorf("identifying this process: %w", err)
	}
	i := &Intent{What: what, Name: name, Owner: self}
	i.path = filepath.Join(c.dir, active, fmt.Sprintf("%d.%d.%d", self.PID, self.Start, serial.Add(1)))
	if err := os.Symlink(what+" "+name, i.path); err != nil {
		return nil, fail("writing", i.path, err)
	}
	return i, nil
}

// End removes the intent: what it announced is done, or undone.
func (i *Intent) End() error {
	if err := os.Remove(i.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fail("removing", i.path, err)
	}
	return nil
}

// Stale lists the intents whose process is gone. Cost: one readdir, and one
// kill(pid, 0) for each command that is at work now. A process id that was
// given to another process hides a stale intent until that one ends;
// thorough looks at start times too, at 15 µs each.
func (c *Catalog) Stale(thorough bool) ([]Intent, error) {
	dir, err := os.Open(filepath.Join(c.dir, active))
	if err != nil {
		return nil, fail("listing", c.dir, err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, fail("listing", dir.Name(), err)
	}
	var stale []Intent
	for _, name := range names {
		var i Intent
		if _, err := fmt.Sscanf(name, "%d.%d.", &i.Owner.PID, &i.Owner.Start); err != nil {
			continue // not ours
		}
		if errors.Is(syscall.Kill(i.Owner.PID, 0), syscall.ESRCH) || thorough && !kernel.Alive(i.Owner) {
			i.path = filepath.Join(dir.Name(), name)
			target, err := os.Readlink(i.path)
			if err != nil {
				continue // mended by another command meanwhile
			}
			i.What, i.Name, _ = strings.Cut(target, " ")
			stale = append(stale, i)
		}
	}
	return stale, nil
}
