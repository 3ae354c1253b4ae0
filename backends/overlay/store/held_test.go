//go:build linux

package store_test

import (
	"context"
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/snapfs/snapfs/backends/overlay/store"
	"github.com/snapfs/snapfs/internal/treetest"
	"golang.org/x/sys/unix"
)

// TestLayersAreExclusiveOnlyWhenNoForkIsMade: while a process makes a fork, its record does not exist yet, and the layers
// of the snapshot that it forks are not free.
func TestLayersAreExclusiveOnlyWhenNoForkIsMade(t *testing.T) {
	s := &store.Store{Dir: treetest.Dir(t)}
	if err := s.Prepare(); err != nil {
		t.Fatal(err)
	}
	made, err := s.Lock(t.Context(), unix.LOCK_SH) // as the maker of a fork does
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if layers, err := s.ExclusiveLayers(ctx, []string{"s1"}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("while a fork is made, the exclusive layers are %v, %v", layers, err)
	}
	made()
	if layers, err := s.ExclusiveLayers(t.Context(), []string{"s1"}); err != nil || !maps.Equal(layers, map[string]int{}) {
		t.Errorf("of no snapshot, the exclusive layers are %v, %v", layers, err)
	}
}
