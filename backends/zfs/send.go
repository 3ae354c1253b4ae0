//go:build linux

package zfs

import (
	"context"
	"errors"
	"io"
	"strconv"
	"strings"

	"github.com/snapfs/snapfs/engine/snapshot"
)

// SendForm and ReceiveForm keep the contract of [snapshot.Sender] and
// [snapshot.Receiver]: what zfs-send(8) writes.
func (b *Backend) SendForm() snapshot.Form { return formStream }

// ReceiveForm is the same.
func (b *Backend) ReceiveForm() snapshot.Form { return formStream }

// Send keeps the contract of [snapshot.Sender], by zfs-send(8). The tree has to be a
// whole dataset, and the base an earlier snapshot of it, or what it was forked from.
func (b *Backend) Send(ctx context.Context, w io.Writer, s snapshot.Sending) error {
	return fail("sending", string(s.ID), b.send(ctx, w, s))
}

func (b *Backend) send(ctx context.Context, w io.Writer, s snapshot.Sending) error {
	r, err := b.enter()
	if err != nil {
		return absent(err)
	}
	defer r.Close()
	m, err := r.whole(s.ID)
	if err != nil {
		return err
	}
	var base mark
	args := []string{"send", m.dataset}
	if s.Base != "" {
		if base, err = r.whole(s.Base); err != nil {
			return err
		}
		args = []string{"send", "-i", base.dataset, m.dataset}
	}
	if s.Resume != "" {
		if err := asked(ctx, s.Resume, m, base); err != nil {
			return err
		}
		args = []string{"send", "-t", s.Resume}
	}
	out := &taker{w: w}
	err = zfsStream(ctx, nil, out, args...)
	switch {
	case out.err != nil:
		return out.err
	case out.begun && err != nil && errors.Is(kindOf(err), snapshot.ErrNotSupported):
		return corrupt(err.Error()) // there is no going another way any more
	}
	return err
}

// whole finds a snapshot that is all of a dataset. ErrNotSupported.
func (r room) whole(id snapshot.ID) (mark, error) {
	m, err := r.find(snapshots, string(id))
	if err == nil && m.within != "." {
		err = &problem{kind: snapshot.ErrNotSupported, path: m.tree, why: "it is a part of a dataset, and ZFS sends the whole"}
	}
	return m, err
}

// asked says whether a token is about the snapshot that is to be sent, and the base.
func asked(ctx context.Context, text string, m, base mark) error {
	t, err := parseToken(text)
	if err != nil {
		return err
	}
	names := []string{m.dataset}
	if base.dataset != "" {
		names = append(names, base.dataset)
	}
	guid, err := guids(ctx, names...)
	if err != nil {
		return err
	}
	if t.name != m.dataset || t.to != guid[m.dataset] || t.from != guid[base.dataset] {
		return badToken("it is about something else")
	}
	return nil
}

// guids are the numbers by which ZFS knows snapshots, on each machine the same.
func guids(ctx context.Context, names ...string) (map[string]uint64, error) {
	out, err := zfs(ctx, append([]string{"get", "-H", "-p", "-o", "name,value", "guid"}, names...)...)
	if err != nil {
		return nil, err
	}
	guid := map[string]uint64{}
	for row := range strings.Lines(out) {
		name, value, _ := strings.Cut(strings.TrimSuffix(row, "\n"), "\t")
		n, err := strconv.ParseUint(value, 10, 64)
		if err != nil {
			return nil, corrupt("a guid is no number: " + value)
		}
		guid[name] = n
	}
	return guid, nil
}

// A taker remembers why no more was taken, and whether anything was offered.
type taker struct {
	w     io.Writer
	begun bool
	err   error
}

func (t *taker) Write(b []byte) (int, error) {
	t.begun = true
	n, err := t.w.Write(b)
	if err != nil {
		t.err = err
	}
	return n, err
}
