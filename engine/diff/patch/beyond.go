package patch

import (
	"bufio"
	"compress/zlib"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/internal/kernel"
)

// writeBeyond writes the records of all changes: see record.go.
func (p *printer) writeBeyond(changes []diff.Change, renames []diff.Rename) error {
	if len(changes) == 0 {
		return nil
	}
	leaders, err := p.leaders(changes)
	if err != nil {
		return err
	}
	from := make(map[string]diff.Change, len(renames))
	moved := make(map[string]string, len(renames))
	for _, r := range renames {
		if !r.Dir {
			moved[r.To], from[r.From] = r.From, diff.Change{}
		}
	}
	for _, c := range changes {
		if _, ok := from[c.Path]; ok {
			from[c.Path] = c
		}
	}
	if err := p.out.Flush(); err != nil {
		return err
	}
	plain, hash := p.out, sha256.New()
	p.out = bufio.NewWriterSize(io.MultiWriter(plain, hash), 64<<10)
	p.out.WriteString(opening + "\n")
	n := 0
	changed := make(map[string]bool, len(changes))
	for _, c := range changes {
		changed[c.Path] = true
	}
	for _, c := range changes {
		r := p.recordOf(c, leaders)
		if r.New.is(typeFile) && r.New.LinkOf != "" && !changed[string(r.New.LinkOf)] {
			if r.New.ID, err = p.sumOf(1, c.Path); err != nil { // what it becomes a link of is looked at, too
				return err
			}
		}
		if f, ok := from[moved[c.Path]]; ok && c.Kind == diff.Added {
			r.From = raw(f.Path)
		}
		if err := p.writeRecord(c, from[string(r.From)].Old, r); err != nil {
			return err
		}
		n++
	}
	times, err := p.writeTimes(changes)
	if err == nil {
		err = p.out.Flush()
	}
	p.out = plain
	fmt.Fprintf(p.out, "%s%d %x\n", closing, n+times, hash.Sum(nil))
	return err
}

func (p *printer) recordOf(c diff.Change, leaders map[string]string) record {
	r := record{Path: raw(c.Path), Old: factsOf(c.Old), New: factsOf(c.New)}
	if r.New != nil && leaders[c.Path] != c.Path {
		r.New.LinkOf = raw(leaders[c.Path])
	}
	return r
}

// writeRecord writes one record, and the extents that it needs. was is what its
// From is on the old side.
func (p *printer) writeRecord(c diff.Change, was *diff.Node, r record) error {
	if was == nil {
		r.From, was = "", c.Old
	}
	if err := p.identifyOld(c, r.Old); err != nil {
		return err
	}
	if !r.New.is(typeFile) || r.New.LinkOf != "" || c.Kind == diff.Modified && c.What&(diff.Content|diff.Type) == 0 {
		return p.line(r)
	}
	oldPath := c.Path
	if r.From != "" {
		oldPath = string(r.From)
	}
	r.Empty = was == nil || !was.Mode.IsRegular()
	if id := p.ids[1][c.Path]; id.id != "" {
		r.New.ID, r.Git = id.id, id.file
		if _, moved := p.to[c.Path]; r.From != "" && !moved { // git has it as a new file
			r.From, r.Empty = "", true
		}
		return p.line(r)
	}
	f, err := p.openFile(1, c.Path)
	if err != nil {
		return err
	}
	defer f.Close()
	if r.New.ID, err = p.sum(f, c.Path); err != nil {
		return err
	}
	var base *os.File
	if !r.Empty {
		if base, err = p.openFile(0, oldPath); err != nil {
			return err
		}
		defer base.Close()
	}
	var all []diff.Extent
	err = diff.Extents(p.ctx, base, f, func(e diff.Extent) error { all = append(all, e); return nil })
	if err != nil {
		return p.fail(c.Path, err)
	}
	r.Extents = len(all)
	if err := p.line(r); err != nil {
		return err
	}
	for _, e := range all {
		if err := p.extent(f, c.Path, e); err != nil {
			return err
		}
	}
	return nil
}

// identifyOld tells the content of an old file that goes away, is replaced, or
// gets other names.
func (p *printer) identifyOld(c diff.Change, old *facts) (err error) {
	if !old.is(typeFile) || c.Kind == diff.Modified && c.What&(diff.Content|diff.Type|diff.Links) == 0 {
		return nil
	}
	if old.ID = p.ids[0][c.Path].id; old.ID != "" {
		return nil
	}
	old.ID, err = p.sumOf(0, c.Path)
	return err
}

func (p *printer) sumOf(side int, path string) (string, error) {
	f, err := p.openFile(side, path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	return p.sum(f, path)
}

func (p *printer) sum(f *os.File, path string) (string, error) {
	sum, err := diff.Sum(p.ctx, f)
	if err != nil {
		return "", p.fail(path, err)
	}
	return sumPrefix + hex.EncodeToString(sum[:]), nil
}

const sumPrefix = "sum:"

func (p *printer) line(r record) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	p.out.WriteString(mark)
	p.out.Write(text)
	return p.out.WriteByte('\n')
}

// extent writes a stretch of a file, compressed.
func (p *printer) extent(f *os.File, path string, e diff.Extent) error {
	fmt.Fprintf(p.out, "%s%d %d\n", extent, e.Offset, e.Length)
	lines := &base85{out: p.out, prefix: packed}
	pack := zlib.NewWriter(lines)
	n, err := io.Copy(pack, &patient{p.ctx, io.NewSectionReader(f, e.Offset, e.Length)})
	if err != nil || n != e.Length {
		return p.fail(path, err)
	}
	if err := pack.Close(); err != nil {
		return err
	}
	lines.flush()
	p.out.WriteString(rest + "\n")
	return nil
}

// writeTimes writes the times of directories in which names came or went, where
// no change of their own does.
func (p *printer) writeTimes(changes []diff.Change) (n int, err error) {
	told := make(map[string]bool, len(changes))
	for _, c := range changes {
		told[c.Path] = true
	}
	for _, c := range changes {
		dir := parentOf(c.Path)
		if c.Kind == diff.Modified || told[dir] {
			continue
		}
		told[dir] = true
		f, err := kernel.OpenBeneath(int(p.root[1].Fd()), dir, openPath, 0)
		if err != nil {
			return n, p.fail(dir, err)
		}
		st, err := kernel.Lstat(int(f.Fd()), "")
		f.Close()
		if err != nil {
			return n, p.fail(dir, err)
		}
		if err := p.line(record{Path: raw(dir), Time: stampOf(st.MTime.Sec, st.MTime.Nsec)}); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

func parentOf(path string) string {
	if cut := strings.LastIndexByte(path, '/'); cut >= 0 {
		return path[:cut]
	}
	return "."
}
