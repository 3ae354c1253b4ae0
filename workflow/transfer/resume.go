package transfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/snapfs/snapfs/engine/parcel"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
)

// Offers says what is here, for the other side's [SendRequest]: the identities of the
// named states of a sandbox, or with "" of all, and what came of those whose way broke.
// Cost: reading the latter.
func (tr *Client) Offers(name string) ([]string, error) {
	records, failures := tr.cat.List()
	have := []string{}
	for _, r := range records {
		if name != "" && r.Name != name {
			continue
		}
		for _, m := range r.Marks {
			if id := m.Identity(); !slices.Contains(have, id) { // a state may have several names
				have = append(have, id)
			}
		}
	}
	begun, err := parcel.ListBegun(tr.engine.BegunDir())
	for _, b := range begun {
		have = append(have, b.String())
	}
	return have, errors.Join(append(failures, err)...)
}

// Forget removes what came of parcels whose way broke, but of those that are being
// received, and answers with how many there were.
func (tr *Client) Forget() (int, error) {
	return parcel.DropOlder(tr.engine.BegunDir(), time.Unix(1<<40, 0)) // whatever the clock has said
}

// Unknown lists what lies where the state directory keeps what came of parcels, and is none of
// that: it is left alone, whatever it is.
func (tr *Client) Unknown() ([]string, error) { return parcel.Strange(tr.engine.BegunDir()) }

// A partialFile keeps what is received until it is there.
type partialFile struct {
	x  *receiving
	in *parcel.Reader
	// kept is nil where it cannot be kept.
	kept *parcel.Kept
}

// openPartial begins to keep what is received, or goes on with what was kept.
func (x *receiving) openPartial(in *parcel.Reader) (partialFile, error) {
	k := partialFile{x: x, in: in}
	kept, err := parcel.Keep(x.e.engine.BegunDir(), x.label)
	if err != nil {
		if x.label.From > 0 {
			return k, err
		}
		return k, nil // it is received all the same
	}
	begun, err := kept.Begun()
	if err != nil {
		return k, errors.Join(err, kept.Drop())
	}
	k.kept = kept
	x.in = io.MultiReader(begun, io.TeeReader(in, kept))
	return k, nil
}

// end drops what was kept, or where there is a rest to be had says how.
func (k partialFile) end(err error) error {
	if k.kept == nil {
		return err
	}
	wrong := errors.Is(err, errs.ErrCorrupt) && !k.in.Broken() // and would be another time
	if err == nil || wrong || errors.Is(err, errs.ErrNoSpace) {
		if derr := k.kept.Drop(); derr != nil {
			k.x.e.notice("what was kept of it is not removed yet: " + derr.Error())
		}
		return err
	}
	bytes, kerr := k.kept.Close()
	if kerr != nil {
		k.x.e.notice("what came is not kept: " + kerr.Error())
	}
	if kerr != nil || bytes == 0 {
		return err
	}
	state := k.x.label.Sandbox + "@" + k.x.label.State
	return &errs.Error{
		Op: "receiving", Path: state, Kind: errs.KindOf(err),
		Err: fmt.Errorf("%w; what came, %v, is kept for a week, to go on from", err, snapshot.Bytes(bytes)),
		Hints: []string{
			"snapfs receive --have | ssh HOST snapfs send " + state + " --have - | snapfs receive",
			"snapfs receive --forget",
		},
	}
}

// goOn finds what the other side has of the state already, if it builds on a base that
// this one has too.
func (s *sending) goOn(have []string) {
	for _, text := range have {
		b, ok := parcel.ParseBegun(text)
		if !ok || b.ID != s.state.Identity() {
			continue
		}
		if b.Base == "" {
			s.begun, s.base = b, nil
			return
		}
		for _, m := range s.rec.Marks {
			if m.Identity() == b.Base && slices.Contains(have, b.Base) && s.keepsStill(m) {
				s.begun, s.base = b, &m
				return
			}
		}
	}
}

// rest writes what the other side lacks. parcel.ErrOther, before anything is written:
// what it has is not how this begins.
func (s *sending) rest(ctx context.Context, w io.Writer, l parcel.Label) error {
	l.From, l.Before = s.begun.Bytes, s.begun.Sum
	var p *parcel.Writer
	skip := parcel.NewSkipper(s.begun, func() (io.Writer, error) {
		var err error
		p, err = parcel.NewWriter(w, l)
		return p, err
	})
	if err := s.stream(ctx, skip); err != nil {
		return err
	}
	if p == nil {
		return parcel.ErrOther
	}
	return p.Close()
}

// failed says how to go on with what was not sent as a whole.
func (s *sending) failed(err error) error {
	state := s.rec.Name + "@" + s.state.Name
	return &errs.Error{
		Op: "sending", Path: state, Kind: errs.KindOf(err), Err: err,
		Hints: []string{"ssh HOST snapfs receive --have | snapfs send " + state + " --have - | ssh HOST snapfs receive"},
	}
}
