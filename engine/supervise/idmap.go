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

// idMappers are FUSE server processes that show trees of one sandbox with other user and group ids, where a
// filesystem does not support id-mapped mounts. They end when the sandbox's mounts are gone.
type idMappers struct {
	program func() ([]string, error)

	mu    sync.Mutex
	procs []*os.Process
}

// start starts a FUSE process that shows the directory tree on the FUSE device dev, with user and group ids shifted
// to begin at base.
func (s *idMappers) start(_ context.Context, dev, tree *os.File, base uint32) error {
	program, err := s.program()
	if err != nil {
		return err
	}
	p, err := run.Background(append(program, strconv.FormatUint(uint64(base), 10)), nil, dev, tree)
	if err != nil {
		return errs.With("mapping the ids of a tree", program[0], err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.procs = append(s.procs, p)
	return nil
}

// idMapperTimeout is how long an id mapper, a FUSE process, may take to write dirty pages to disk after its mounts
// are gone, before it is killed.
const idMapperTimeout = 10 * time.Second

// wait waits until the FUSE id mappers have written all data and ended. The container must have ended.
func (s *idMappers) wait() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.procs {
		late := time.AfterFunc(idMapperTimeout, func() { _ = p.Kill() }) // it has usually ended
		_, _ = p.Wait()                                                  // its status does not matter
		late.Stop()
	}
	s.procs = nil
}

// idMappingNote returns a notice that names the trees shown by a FUSE id mapper, which is slower; nothing if none is.
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
