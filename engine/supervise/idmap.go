package supervise

import (
	"context"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/run"
	"github.com/snapfs/snapfs/isolate"
)

// idMappers are the processes that show trees of one sandbox, because their filesystems
// have no id-mapped mounts. They end when the sandbox's mounts have gone.
type idMappers struct {
	program func() ([]string, error)

	mu    sync.Mutex
	procs []*os.Process
}

// newIDMappers is what isolate starts them by, or nil where there are none to be had.
func (sv *Manager) newIDMappers() (*idMappers, isolate.IDMapper) {
	if sv.idMapper == nil {
		return nil, nil
	}
	s := &idMappers{program: sv.idMapper}
	return s, s.start
}

func (s *idMappers) start(_ context.Context, dev, tree *os.File, base uint32) error {
	program, err := s.program()
	if err != nil {
		return err
	}
	p, err := run.Background(append(program, strconv.FormatUint(uint64(base), 10)), nil, dev, tree)
	if err != nil {
		return &errs.Error{Op: "showing a tree", Path: program[0], Kind: errs.KindOf(err), Err: err}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.procs = append(s.procs, p)
	return nil
}

// shiftPatience is how long a process may take to write what was mapped.
const idMapperTimeout = 10 * time.Second

// wait answers when all that was written is in the trees and nothing holds them any
// more. The box has ended.
func (s *idMappers) wait() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.procs {
		late := time.AfterFunc(idMapperTimeout, func() { _ = p.Kill() }) // it has ended, mostly
		_, _ = p.Wait()                                                  // nobody asks how
		late.Stop()
	}
	s.procs = nil
}

// idMappingNote says which trees are shown by a process, or nothing.
func idMappingNote(l isolate.Level) []string {
	if len(l.FUSEMapped) == 0 {
		return nil
	}
	list := make([]string, len(l.FUSEMapped))
	for i, t := range l.FUSEMapped {
		list[i] = pathlist.Printable(t)
	}
	return []string{strings.Join(list, ", ") + ": its filesystem has no id-mapped mounts; a process shows it instead (FUSE), which is slower"}
}
