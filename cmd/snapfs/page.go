package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/snapfs/snapfs/engine/compare"
	"github.com/snapfs/snapfs/engine/diff/page"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
)

// A pageDocument is the JSON form of `snapfs diff --html`: the file that was written, and how many changes it
// shows.
type pageDocument struct {
	Page string `json:"page"`
	Size int64  `json:"size"`
	// Paths is the number of changed paths, LeftOut the number omitted from the page for its size,
	// Unread the number listed without their content.
	Paths   int `json:"paths"`
	LeftOut int `json:"leftOut"`
	Unread  int `json:"unread"`
}

// writePage writes changes as a review page in HTML, to file or, for "-", to standard output. refs are the
// arguments that name the compared states, for the page's title.
func (a *app) writePage(ctx context.Context, file string, changes *compare.Changes, refs []string) error {
	p := page.Page{Title: "Changes in " + strings.Join(refs, " "), Command: append([]string{"snapfs", "diff"}, refs...), Made: time.Now(), Parts: changes.PageParts()}
	if len(refs) == 2 && !isRange(refs[1]) {
		p.Title = "Changes from " + refs[0] + " to " + refs[1]
	}
	if file == "-" {
		_, err := page.Write(ctx, a.ui.out, p)
		return err
	}
	written, err := replacePage(file, func(w io.Writer) (page.Written, error) { return page.Write(ctx, w, p) })
	if err != nil {
		return err
	}
	d := pageDocument{file, written.Size, written.Paths, written.LeftOut, written.Unread}
	return a.ui.result(d, func(w io.Writer) error {
		said := fmt.Sprintf("%s: %s, %s", tame(file), count(d.Paths, "path"), snapshot.Bytes(d.Size))
		if d.LeftOut > 0 {
			said += fmt.Sprintf(", %d left out", d.LeftOut)
		}
		if d.Unread > 0 {
			said += fmt.Sprintf(", %d not readable", d.Unread)
		}
		_, err := fmt.Fprintln(w, said)
		return err
	})
}

// replacePage calls write, which writes a review page, for a temporary file and renames that to file, so that
// file never holds a part of a page. Only its owner can read it, because changes may be private. It replaces
// nothing but an empty file or an earlier page.
func replacePage(file string, write func(io.Writer) (page.Written, error)) (written page.Written, err error) {
	fail := func(err error) error {
		return errs.With("writing the page", file, err)
	}
	if err := replaceable(file); err != nil {
		return written, fail(err)
	}
	f, err := os.CreateTemp(filepath.Dir(file), ".snapfs-page-*")
	if err != nil {
		return written, fail(errors.Unwrap(err))
	}
	defer func() {
		f.Close()
		if err != nil {
			_ = os.Remove(f.Name()) // the error before says more
		}
	}()
	if written, err = write(f); err != nil {
		if errs.KindOf(err) == nil {
			err = fail(err)
		}
		return written, err
	}
	if err = f.Sync(); err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		err = fail(err)
	}
	return written, err
}

// replaceable returns an error if file exists and is neither empty nor a review page, so that no other file
// is overwritten.
func replaceable(file string) error {
	info, err := os.Lstat(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	other := &errs.Error{Kind: errs.ErrExists, Err: errors.New("the file exists and is not a review page")}
	if err != nil {
		return errors.Unwrap(err)
	}
	if !info.Mode().IsRegular() {
		return other
	}
	f, err := os.Open(file)
	if err != nil {
		return errors.Unwrap(err)
	}
	defer f.Close()
	begins := make([]byte, len(page.Beginning))
	n, err := io.ReadFull(f, begins)
	if n == 0 && errors.Is(err, io.EOF) || string(begins[:n]) == page.Beginning {
		return nil
	}
	return other
}
