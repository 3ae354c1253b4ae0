//go:build linux

package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// A Record is the text file that stands for a snapshot or a fork:
//
//	snapfs overlay 1 fork
//	tree "/home/ann/work"
//	taken 2026-11-20T19:09:26.123456789Z
//	base s1
//	boot 2f0c9a86-9e11-4f6c-8c4e-3f6cf8a5c1de
//	upper f1-k3n0x1
//	files whole
//	layer f0-8vq2z9
//	end
//
// A record without its last line is incomplete, and invalid.
type Record struct {
	Fork   bool
	Tree   string
	Taken  time.Time
	Base   string   // of a fork
	Boot   string   // of a fork: the last boot during which its upper layer may have been mounted
	Upper  string   // of a fork
	Layers []string // topmost first, above the tree
	Whole  bool     // each file of the layers has its content (not metacopy)
}

const (
	recordMark = "snapfs overlay "
	snapshotV1 = recordMark + "1 snapshot\n"
	forkV1     = recordMark + "1 fork\n"
)

// errIncomplete means that a record, the file of a snapshot or fork, lacks its last line, because its writer
// was killed or is still writing.
var errIncomplete = errors.New("the record is incomplete")

// errNoMark is the error for a file that does not begin with this backend's ownership mark.
var errNoMark error = errs.New("", "", errs.ErrDenied, "the file does not carry the mark of this backend")

func (r *Record) text() []byte {
	t := make([]byte, 0, 256+len(r.Tree)+32*len(r.Layers))
	if r.Fork {
		t = append(t, forkV1...)
	} else {
		t = append(t, snapshotV1...)
	}
	t = append(strconv.AppendQuote(append(t, "tree "...), r.Tree), '\n')
	t = append(r.Taken.UTC().AppendFormat(append(t, "taken "...), time.RFC3339Nano), '\n')
	if r.Fork {
		t = append(append(append(t, "base "...), r.Base...), '\n')
		t = append(append(append(t, "boot "...), r.Boot...), '\n')
		t = append(append(append(t, "upper "...), r.Upper...), '\n')
	}
	if r.Whole {
		t = append(t, "files whole\n"...)
	}
	for _, layer := range r.Layers {
		t = append(append(append(t, "layer "...), layer...), '\n')
	}
	return append(t, "end\n"...)
}

func parseRecord(text string) (Record, error) {
	head, body, _ := strings.Cut(text, "\n")
	r := Record{Fork: head+"\n" == forkV1}
	switch {
	case strings.HasPrefix(forkV1, text), strings.HasPrefix(snapshotV1, text):
		return r, errIncomplete
	case !r.Fork && head+"\n" != snapshotV1 && strings.HasPrefix(text, recordMark):
		return r, errs.New("", "", errs.ErrNotSupported, "the record was written by a newer version of snapfs: "+strconv.Quote(head))
	case !r.Fork && head+"\n" != snapshotV1:
		return r, errNoMark
	}
	for line := range strings.Lines(body) {
		line, whole := strings.CutSuffix(line, "\n")
		if !whole {
			return r, errIncomplete
		}
		if line == "end" {
			return r, r.check()
		}
		key, value, _ := strings.Cut(line, " ")
		if err := r.set(key, value); err != nil {
			return r, errs.New("", "", errs.ErrCorrupt, fmt.Sprintf("line %q of the record: %v", line, err))
		}
	}
	return r, errIncomplete
}

func (r *Record) set(key, value string) (err error) {
	switch key {
	case "tree":
		r.Tree, err = strconv.Unquote(value)
	case "taken":
		r.Taken, err = time.Parse(time.RFC3339Nano, value)
	case "base":
		r.Base = value
	case "boot":
		r.Boot = value
	case "upper":
		r.Upper, err = value, layerName(value)
	case "layer":
		r.Layers, err = append(r.Layers, value), layerName(value)
	case "files":
		r.Whole = value == "whole"
	default:
		err = errors.New("unknown key")
	}
	if len(value) == 0 && key != "boot" {
		err = errors.New("no value")
	}
	return err
}

func (r *Record) check() error {
	if r.Tree == "" || r.Taken.IsZero() || r.Fork && (r.Base == "" || r.Upper == "") {
		return errs.New("", "", errs.ErrCorrupt, "the record lacks a line")
	}
	return nil
}

// layerName returns an error if name, which a record gives as that of a layer, would lead out of the
// directory of layers.
func layerName(name string) error {
	if len(name) == 0 || name[0] == '.' || strings.ContainsAny(name, "/\x00") {
		return errors.New("no valid layer name")
	}
	return nil
}

// readRecord reads the record at path, relative to the directory fd, and the attributes of its file before it
// was read. Errors: not exist, errIncomplete and *errs.Error, each in a *fs.PathError.
func readRecord(fd int, path string) (Record, vfs.Stat, error) {
	text, st, err := readFile(fd, path)
	if err != nil {
		return Record{}, st, err
	}
	r, err := parseRecord(text)
	if err != nil {
		return r, st, &fs.PathError{Op: "read", Path: path, Err: err}
	}
	return r, st, nil
}

// readFile reads the small file at path, relative to the open directory dir, with few system calls. It follows no
// symbolic link and does not block on a pipe. It reads again if the file lost its name meanwhile, because the store
// may have reused the file for another record (see reuse.go).
func readFile(dir int, path string) (string, vfs.Stat, error) {
	for {
		text, st, err := readOnce(dir, path)
		if err != nil {
			return "", st, err
		}
		now, err := vfs.Lstat(dir, path)
		if err != nil || now.Ino == st.Ino && now.Dev == st.Dev {
			return text, st, err
		}
	}
}

// readOnce reads a small file without following a symbolic link, and without blocking on a pipe. The file may
// have lost its name by the time of its return.
func readOnce(dir int, path string) (string, vfs.Stat, error) {
	data, st, err := vfs.ReadSmallAt(dir, path, unix.O_NOFOLLOW|unix.O_NONBLOCK)
	return string(data), st, err
}

// writeNew creates the file path with this text. After an error the file does not exist; a killed process
// leaves a part of the text.
func writeNew(path string, text []byte) error {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return &fs.PathError{Op: "create", Path: path, Err: err}
	}
	n, err := unix.Write(fd, text)
	if err == nil && n < len(text) {
		err = unix.ENOSPC
	}
	if e := unix.Close(fd); err == nil {
		err = e
	}
	if err != nil {
		_ = os.Remove(path) // otherwise an incomplete record stays, which Remove deletes
		return &fs.PathError{Op: "write", Path: path, Err: err}
	}
	return nil
}
