package catalog

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/snapfs/snapfs/internal/fault"
	"github.com/snapfs/snapfs/internal/proc"
)

// An Intent is a file that announces an operation on a sandbox, such as its creation, that a later command
// must repair if the process dies. Only its name counts, "PID.START.SERIAL.WHAT.ID.SANDBOX". It is a hard
// link, created and removed by one system call each, because a link needs no inode. (ext4 reuses a freed
// inode number only minutes later, and searches the recent ones at every creation: fs/ext4/ialloc.c,
// recently_deleted.)
type Intent struct {
	// What is the operation and Name the sandbox. ID is the sandbox's id: at the time of a
	// repair, another sandbox may have the name.
	What, Name, ID string
	// Owner is the process that performs the operation.
	Owner proc.Process
	path  string
	plan  fault.Plan
}

// Operations that an [Intent] announces: the values of its field What, and part of its file name.
const (
	Making      = "making"   // a sandbox, until its record says ready; an ephemeral one, until it is removed
	Changing    = "changing" // its states
	Removing    = "removing" // the sandbox and its trees
	Supervising = "keeping"  // its namespaces: the process is its supervisor
)

var serial atomic.Uint64

// Begin announces that this process starts the operation what (such as Making) on the sandbox with this name
// and id. The caller calls [Intent.End] after it. Cost: one system call. ErrInvalid: the name is not valid.
func (c *Catalog) Begin(what, name, id string) (*Intent, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	self, err := proc.Self()
	if err != nil {
		return nil, fmt.Errorf("identifying this process: %w", err)
	}
	i := &Intent{What: what, Name: name, ID: id, Owner: self, plan: c.plan}
	i.path = filepath.Join(c.dir, active, fmt.Sprintf("%d.%d.%d.%s.%s.%s", self.PID, self.Start, serial.Add(1), what, id, name))
	if err := c.plan.Point("say what is begun"); err != nil {
		return nil, fail("writing", i.path, err)
	}
	err = os.Link(filepath.Join(c.dir, format), i.path)
	if err != nil && !errors.Is(err, fs.ErrExist) { // a filesystem without hard links, or with no more for this file
		err = os.Symlink(format, i.path)
	}
	if err != nil {
		return nil, fail("writing", i.path, err)
	}
	return i, nil
}

// End removes the file by which the intent announces its operation, such as making a sandbox, once that
// operation is complete or reverted.
func (i *Intent) End() error {
	if err := i.plan.Point("say that it is done"); err != nil {
		return fail("removing", i.path, err)
	}
	if err := os.Remove(i.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fail("removing", i.path, err)
	}
	return nil
}

// Stands reports whether the file of the intent, which announces an operation on a sandbox, still exists,
// that is, whether no other process has repaired the operation meanwhile. The caller holds the sandbox's
// lock.
func (i *Intent) Stands() bool {
	_, err := os.Lstat(i.path)
	return err == nil
}

// Stale lists the intents, the files that announce operations in progress, whose process has died; the caller
// repairs their sandboxes. Cost: one readdir, and a kill(pid, 0) for each running command. Another process
// that got the same process id hides such an intent until it ends, unless thorough is set: then Stale also
// compares the start times of the processes, at 15 µs each.
func (c *Catalog) Stale(thorough bool) ([]Intent, error) {
	dir := filepath.Join(c.dir, active)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fail("listing", dir, err)
	}
	var stale []Intent
	for _, e := range entries {
		i, ok := parseIntent(e.Name())
		if !ok {
			continue // not an intent
		}
		if errors.Is(syscall.Kill(i.Owner.PID, 0), syscall.ESRCH) || thorough && !proc.Alive(i.Owner) {
			i.path = filepath.Join(dir, e.Name())
			stale = append(stale, i)
		}
	}
	return stale, nil
}

// UnderWay returns the intent by which a living process has announced that it does what, such as Removing, with the
// sandbox of this id; nil if there is none. Cost: one readdir.
func (c *Catalog) UnderWay(what, id string) *Intent {
	dir := filepath.Join(c.dir, active)
	entries, _ := os.ReadDir(dir) // without it nothing is announced
	for _, e := range entries {
		if i, ok := parseIntent(e.Name()); ok && i.What == what && i.ID == id && proc.Alive(i.Owner) {
			i.path = filepath.Join(dir, e.Name())
			return &i
		}
	}
	return nil
}

func parseIntent(name string) (i Intent, ok bool) {
	parts := strings.SplitN(name, ".", 6)
	if len(parts) < 6 {
		return i, false
	}
	pid, err := strconv.Atoi(parts[0])
	start, serr := strconv.ParseUint(parts[1], 10, 64)
	i.Owner.PID, i.Owner.Start, i.What, i.ID, i.Name = pid, start, parts[3], parts[4], parts[5]
	return i, err == nil && serr == nil && pid > 0
}
