package hostfs

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
)

// A driver for another filesystem is opened only if the user names it: then its error has hints.
func TestADriverForAnotherFilesystemIsNotOpened(t *testing.T) {
	t.Parallel()
	cat, err := catalog.Open(t.TempDir() + "/state")
	if err != nil {
		t.Fatal(err)
	}
	opened := 0
	d := snapshot.Driver{Name: "other", Automatic: true, Filesystem: "otherfs", Open: func(context.Context, snapshot.Place) (snapshot.Backend, error) {
		opened++
		return nil, errs.New("opening", "", errs.ErrNotSupported, "no")
	}}
	hf := New(cat, []snapshot.Driver{d}, nil, func(string) {})
	_, err = hf.try(t.Context(), d, t.TempDir(), Request{})
	if opened != 0 || !errors.Is(err, errs.ErrNotSupported) || !strings.Contains(err.Error(), ", not on otherfs") {
		t.Errorf("opened %d times: %v", opened, err)
	}
	for _, req := range []Request{{Backend: "other"}, {Policy: catalog.Policy{Limits: catalog.Limits{Disk: 1 << 20}}}} {
		was := opened
		if _, err := hf.try(t.Context(), d, t.TempDir(), req); opened != was+1 || err == nil {
			t.Errorf("%+v: opened %d times: %v", req, opened-was, err)
		}
	}
}
