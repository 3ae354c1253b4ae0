package vfs_test

import (
	"sync/atomic"
	"testing"

	"github.com/snapfs/snapfs/internal/vfs"
)

func TestEachNumberIsCalledOnce(t *testing.T) {
	for _, n := range []int{0, 1, 63, 64, 65, 1000} {
		calls := make([]atomic.Int32, n)
		vfs.Each(n, func(i int) { calls[i].Add(1) })
		for i := range calls {
			if got := calls[i].Load(); got != 1 {
				t.Errorf("%d of %d: %d calls", i, n, got)
			}
		}
	}
}
