package stages

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/exactjson"
	"github.com/snapfs/snapfs/internal/vfs"
)

// Files of promotions through stages, relative to the state directory:
//
//	pipelines/ID/state.json     the Pipeline; replaced and synced before each step
//	pipelines/ID/content.json   Pipeline.Content
//	pipelines/ID/*.log          output of the commands
//	pipelines/ID/undone.NAME    the stage promotion NAME was undone
//
// The process that works on a pipeline holds a flock on its directory, which the kernel releases when the
// process ends. A directory without state.json is from an interrupted start.
const (
	pipelinesDir   = "pipelines"
	pipelineFile   = "state.json"
	contentFile    = "content.json"
	pipelineFormat = 1
	maxPipelines   = 100
)

// Dir returns the directory, in the state directory, of the pipeline (promotion through stages) with this id.
// It need not exist.
func (sg *Store) Dir(id string) string {
	return filepath.Join(sg.Catalog.Dir(), pipelinesDir, id)
}

// Save writes the state of the pipeline p, a promotion through stages, to its file atomically and syncs it to
// disk.
func (sg *Store) Save(p *Pipeline) error {
	p.Format = pipelineFormat
	file := *p
	file.Running = false
	data, err := exactjson.EncodeIndent(file, "", "  ")
	if err != nil {
		return fmt.Errorf("writing the promotion %s: %w", p.ID, err)
	}
	return sg.Catalog.Store(filepath.Join(pipelinesDir, p.ID, pipelineFile), append(data, '\n'))
}

// Read returns the pipeline with this id. Its field Running says whether a process works on it now.
//
// Errors: errs.ErrNotFound, ErrCorrupt, and ErrNotSupported for a newer format.
func (sg *Store) Read(id string) (*Pipeline, error) {
	refuse := func(kind, err error, hints ...string) error {
		return &errs.Error{Op: "reading the promotion", Subject: pathlist.Printable(id), Kind: kind, Err: err, Hints: hints}
	}
	if !snapshot.ValidID(id) {
		return nil, refuse(errs.ErrNotFound, errors.New("no promotion through stages has this name"), "snapfs log")
	}
	data, err := os.ReadFile(filepath.Join(sg.Dir(id), pipelineFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, refuse(errs.ErrNotFound, errors.New("no promotion through stages has this name"), "snapfs log")
	}
	if err != nil {
		return nil, refuse(errs.KindOf(err), err)
	}
	p := new(Pipeline)
	if err := exactjson.Decode(data, p); err != nil {
		return nil, refuse(errs.ErrCorrupt, err)
	}
	if p.Format > pipelineFormat {
		return nil, refuse(errs.ErrNotSupported, fmt.Errorf("written by a newer snapfs (format %d, this one supports %d)", p.Format, pipelineFormat))
	}
	if lock, err := TryLock(sg.Dir(id)); err == nil {
		lock.Close()
	} else {
		p.Running = errors.Is(err, errs.ErrBusy)
	}
	return p, nil
}

// Pipelines lists all promotions through stages, newest first. It returns the readable ones together with the
// errors of the others.
func (sg *Store) Pipelines() ([]Pipeline, error) {
	list, err := os.ReadDir(filepath.Join(sg.Catalog.Dir(), pipelinesDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, errs.With("listing the promotions", sg.Catalog.Dir(), err)
	}
	var all []Pipeline
	var failures []error
	for _, entry := range list {
		p, err := sg.Read(entry.Name())
		switch {
		case err == nil:
			all = append(all, *p)
		case !errors.Is(err, errs.ErrNotFound):
			failures = append(failures, err)
		}
	}
	slices.SortStableFunc(all, func(a, b Pipeline) int { return b.Began.Compare(a.Began) })
	return all, errors.Join(failures...)
}

// Begin creates the directory of p, a new promotion through stages (pipeline), and saves its first state. It
// returns the file that holds the pipeline's lock, which the caller closes. It also removes old pipelines.
// After an error the directory does not exist. Error: errs.ErrBusy if the sandbox has another open pipeline.
func (sg *Store) Begin(p *Pipeline) (*os.File, error) {
	all, err := sg.Pipelines()
	if err != nil {
		return nil, err
	}
	for _, other := range all {
		if other.State == PipelineOpen && other.SandboxID == p.SandboxID {
			return nil, stillOpen(&other)
		}
	}
	sg.prunePipelines(all)
	dir := sg.Dir(p.ID)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, errs.With("creating", dir, err)
	}
	lock, err := TryLock(dir)
	if err != nil {
		return nil, err
	}
	data, err := exactjson.Encode(p.Content)
	if err == nil {
		err = sg.Catalog.Store(filepath.Join(pipelinesDir, p.ID, contentFile), data)
	}
	if err == nil {
		err = sg.Save(p)
	}
	if err != nil {
		lock.Close()
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return lock, nil
}

// stillOpen returns the ErrBusy for a sandbox whose earlier promotion, p, has not ended, with the commands
// that continue or cancel that.
func stillOpen(p *Pipeline) error {
	if p.Running {
		return Error(p, errs.ErrBusy, errors.New("another command is promoting it"), "snapfs log")
	}
	i, _ := p.Current()
	what := "was interrupted at stage " + p.Stages[i].Name
	if p.Stages[i].State == StageWaiting {
		what = "waits for approval of stage " + p.Stages[i].Name
	}
	return Error(p, errs.ErrBusy, errors.New("an earlier promotion "+what),
		"snapfs promote --continue "+p.ID, "snapfs promote --cancel "+p.ID)
}

// prunePipelines removes old entries among all, the pipelines with the newest first: all but the newest
// maxPipelines that have ended, and the directories of interrupted starts. It ignores errors: the next call
// retries.
func (sg *Store) prunePipelines(all []Pipeline) {
	known, ended := map[string]bool{}, 0
	for _, p := range all { // newest first
		known[p.ID] = true
		if p.State == PipelineOpen {
			continue
		}
		if ended++; ended >= maxPipelines {
			_ = os.RemoveAll(sg.Dir(p.ID))
		}
	}
	list, _ := os.ReadDir(filepath.Join(sg.Catalog.Dir(), pipelinesDir))
	for _, entry := range list {
		if known[entry.Name()] {
			continue
		}
		dir := sg.Dir(entry.Name())
		if _, err := os.Lstat(filepath.Join(dir, pipelineFile)); !errors.Is(err, fs.ErrNotExist) {
			continue // unreadable: keep it for a person to look at
		}
		if info, err := entry.Info(); err != nil || time.Since(info.ModTime()) < time.Minute {
			continue // another process may be creating it
		}
		if lock, err := TryLock(dir); err == nil {
			_ = os.RemoveAll(dir)
			lock.Close()
		}
	}
}

// OnlyOpen returns the id of the only promotion through stages that has not ended, for a command that names
// none: of the named sandbox, or of all for "".
//
// Errors: errs.ErrNotFound if there is none, ErrBusy if there are several.
func (sg *Store) OnlyOpen(sandbox string) (string, error) {
	all, err := sg.Pipelines()
	if err != nil {
		return "", err
	}
	var open []string
	for _, p := range all {
		if p.State == PipelineOpen && (sandbox == "" || p.Sandbox == sandbox) {
			open = append(open, p.ID)
		}
	}
	switch len(open) {
	case 1:
		return open[0], nil
	case 0:
		return "", &errs.Error{Op: strings.TrimSpace("continuing the promotion of " + pathlist.Printable(sandbox)), Kind: errs.ErrNotFound, Err: errors.New("no promotion is open"), Hints: []string{"snapfs log"}}
	}
	var hints []string
	for _, id := range open {
		hints = append(hints, "snapfs promote --continue "+id)
	}
	return "", &errs.Error{Op: "continuing a promotion", Kind: errs.ErrBusy, Err: errors.New("several promotions are open: " + strings.Join(open, ", ")), Hints: hints}
}

// NewPipeline returns a new promotion through stages of the sandbox of rec, started by the user by. It has no
// stages yet and is not saved.
func NewPipeline(rec *catalog.Record, by string) *Pipeline {
	return &Pipeline{
		ID: catalog.NewID(), Sandbox: rec.Name, SandboxID: rec.ID, Workspace: rec.Workspace,
		By: by, Began: time.Now(), State: PipelineOpen,
	}
}

// ReadContent returns the Content of the pipeline (promotion through stages) with this id: a digest of each
// change of the sandbox, by path, as it was at the start. Error: errs.ErrCorrupt.
func (sg *Store) ReadContent(id string) (map[string]string, error) {
	path := filepath.Join(sg.Dir(id), contentFile)
	data, err := os.ReadFile(path)
	content := map[string]string{}
	if err == nil {
		err = exactjson.Decode(data, &content)
	}
	if err != nil {
		return nil, &errs.Error{Op: "reading", Path: path, Kind: errs.ErrCorrupt, Err: err}
	}
	return content, nil
}

// TryLock takes an exclusive flock on the directory dir, such as a pipeline's, without waiting. Closing the
// file releases it. Error: errs.ErrBusy if another process holds the lock.
func TryLock(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err == nil {
		if err = vfs.Flock(f, syscall.LOCK_EX|syscall.LOCK_NB); err == nil {
			return f, nil
		}
		f.Close()
	}
	kind := errs.KindOf(err)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		kind = errs.ErrBusy
	}
	return nil, &errs.Error{Op: "locking", Path: dir, Kind: kind, Err: err}
}
