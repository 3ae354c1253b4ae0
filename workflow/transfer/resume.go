package transfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"time"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/workflow/transfer/stream"
)

// retention is how long the received part of a sandbox's stream that broke off stays on disk for a later
// resume. Then it is removed.
const retention = 7 * 24 * time.Hour

// partialDir returns the directory in the state directory that contains the received parts of streams
// (snapshots from other machines) whose transfer broke.
func partialDir(e *engine.Engine) string { return filepath.Join(e.Catalog().Dir(), "begun") }

// Expire removes the received parts of streams (snapshots from other machines) whose transfer broke and that
// have not grown for a week.
func Expire(e *engine.Engine) error {
	_, err := stream.DropOlder(partialDir(e), time.Now().Add(-retention))
	return err
}

// Offers lists the data of this machine on which a sender can build, for its [SendRequest]: the identities of
// the named snapshots of a sandbox, or of all sandboxes if name is "", and the received parts of broken
// streams. Cost: it reads and hashes these parts.
func (tr *Client) Offers(name string) ([]string, error) {
	records, failures := tr.cat.List()
	have := []string{}
	for _, r := range records {
		if name != "" && r.Name != name {
			continue
		}
		for _, m := range r.Snapshots {
			if id := m.Identity(); !slices.Contains(have, id) { // a snapshot may have several names
				have = append(have, id)
			}
		}
	}
	begun, err := stream.ListPartial(partialDir(tr.engine))
	for _, b := range begun {
		have = append(have, b.String())
	}
	return have, errors.Join(append(failures, err)...)
}

// Forget removes the received parts of streams (snapshots from other machines) whose transfer broke, except
// those of transfers in progress. It returns how many it removed.
func (tr *Client) Forget() (int, error) {
	return stream.DropOlder(partialDir(tr.engine), time.Unix(1<<40, 0)) // even with a wrong clock
}

// Unknown lists files, in the directory for received parts of streams, that snapfs did not write. snapfs does
// not remove them.
func (tr *Client) Unknown() ([]string, error) { return stream.Unknown(partialDir(tr.engine)) }

// A partialFile stores the bytes of a stream, a snapshot from another machine, while it is received, so that
// the transfer can be resumed if it breaks.
type partialFile struct {
	x  *receiving
	in *stream.Reader
	// file is the open partial file, or nil if none could be made.
	file *stream.PartialFile
}

// openPartial opens the file that stores the received part of the stream. It makes x.in read the part in it
// first, then the stream, whose bytes it stores. If the file cannot be opened, it stores nothing, and fails
// only for a stream that resumes.
func (x *receiving) openPartial(in *stream.Reader) (partialFile, error) {
	k := partialFile{x: x, in: in}
	kept, err := stream.OpenPartial(partialDir(x.e.engine), x.label)
	if err != nil {
		if x.label.From > 0 {
			return k, err
		}
		return k, nil // receive it without storing
	}
	begun, err := kept.Received()
	if err != nil {
		return k, errors.Join(err, kept.Drop())
	}
	k.file = kept
	x.in = io.MultiReader(begun, io.TeeReader(in, kept))
	return k, nil
}

// end finishes the file after a receive that ended with err. It removes the file after success or if a resume
// would be useless. Otherwise it adds hints to err that say how to resume.
func (k partialFile) end(err error) error {
	if k.file == nil {
		return err
	}
	wrong := errors.Is(err, errs.ErrCorrupt) && !k.in.Broken() // a resumed transfer would fail, too
	if err == nil || wrong || errors.Is(err, errs.ErrNoSpace) {
		if derr := k.file.Drop(); derr != nil {
			k.x.e.notice("the partial stream is not removed yet: " + derr.Error())
		}
		return err
	}
	bytes, kerr := k.file.Close()
	if kerr != nil {
		k.x.e.notice("the received part is not stored: " + kerr.Error())
	}
	if kerr != nil || bytes == 0 {
		return err
	}
	state := k.x.label.Sandbox + "@" + k.x.label.State
	return &errs.Error{
		Op: "receiving", Path: state, Kind: errs.KindOf(err),
		Err: fmt.Errorf("%w; the received %v stay for a week, to resume from", err, snapshot.Bytes(bytes)),
		Hints: []string{
			"snapfs receive --have | ssh HOST snapfs send " + state + " --have - | snapfs receive",
			"snapfs receive --forget",
		},
	}
}

// findReceived looks in have, the list of the receiver's data, for a part of this stream that the receiver
// got in an earlier, broken transfer, and notes it. The sender needs the base of that part, too.
func (s *sending) findReceived(have []string) {
	for _, text := range have {
		b, ok := stream.ParsePartial(text)
		if !ok || b.ID != s.state.Identity() {
			continue
		}
		if b.Base == "" {
			s.received, s.base = b, nil
			return
		}
		for _, m := range s.rec.Snapshots {
			if m.Identity() == b.Base && slices.Contains(have, b.Base) && s.keepsStill(m) {
				s.received, s.base = b, &m
				return
			}
		}
	}
}

// rest writes the part of the stream with the header l that the receiver lacks, to resume a broken transfer.
// It returns stream.ErrOtherPrefix, before it writes anything, if the part that the receiver has is not the
// beginning of this stream.
func (s *sending) rest(ctx context.Context, w io.Writer, l stream.Header) error {
	l.From, l.Before = s.received.Bytes, s.received.Sum
	var p *stream.Writer
	skip := stream.NewSkipper(s.received, func() (io.Writer, error) {
		var err error
		p, err = stream.NewWriter(w, l)
		return p, err
	})
	if err := s.stream(ctx, skip); err != nil {
		return err
	}
	if p == nil {
		return stream.ErrOtherPrefix
	}
	return p.Close()
}

// failed returns err, the error by which sending the stream broke off, with hints that say how to resume the
// transfer.
func (s *sending) failed(err error) error {
	state := s.rec.Name + "@" + s.state.Name
	return errs.With("sending", state, err, "ssh HOST snapfs receive --have | snapfs send "+state+" --have - | ssh HOST snapfs receive")
}
