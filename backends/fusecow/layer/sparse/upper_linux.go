// Package sparse reads sparse uppers: files whose holes show the content of lower files, their
// extent sources. It works on open files and must not know the inode table or the quota.
package sparse

import (
	"sync"

	"github.com/snapfs/snapfs/backends/fusecow/layer/logfile"
	"github.com/snapfs/snapfs/internal/vfs"
)

// An Upper lists the files, called sources, that show through the holes of an inode's own file. It is never
// modified, only replaced.
type Upper struct {
	logfile.Sparse
	// WriteMu is held by writers of the content.
	WriteMu *sync.Mutex
}

// New returns the [Upper] for p, the extent sources (files that show through a file's holes) that a layer's
// log records.
func New(p logfile.Sparse) *Upper { return &Upper{Sparse: p, WriteMu: new(sync.Mutex)} }

// Cut returns an Upper for the file truncated at offset at: all sources end there. It is nil if no source
// remains.
func (p *Upper) Cut(at int64) *Upper {
	if p == nil || p.Shown() <= at {
		return p
	}
	if at == 0 {
		return nil
	}
	next := &Upper{Sparse: logfile.Sparse{Own: p.Own}, WriteMu: p.WriteMu}
	for _, s := range p.Sources {
		s.Until = min(s.Until, at)
		next.Sources = append(next.Sources, s)
	}
	return next
}

// In returns a copy of p, the list of files that show through the holes of an inode's file, for fd: a copy of
// that file in another layer, whose identity the list then records.
func (p *Upper) In(fd int) (*Upper, error) {
	if p == nil {
		return nil, nil
	}
	st, err := vfs.Lstat(fd, "")
	return New(logfile.Sparse{Own: logfile.FileIdentity(&st), Sources: p.Sources}), err
}

// Shown returns the offset from which on no source (a file that shows through holes) is visible in the upper
// file, so that holes there are zeros.
func (p *Upper) Shown() int64 { return p.Sources[0].Until }
