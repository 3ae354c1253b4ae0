package vfs

import (
	"runtime"
	"sync"
)

// minShare is the number of calls from which on Each uses another thread.
const minShare = 64

// Each calls do with each number below n, on all processors, and returns when all calls have
// returned. It is for reading many small files.
func Each(n int, do func(i int)) {
	share := max(minShare, n/runtime.GOMAXPROCS(0)+1)
	var others sync.WaitGroup
	for from := share; from < n; from += share {
		others.Go(func() {
			for i := from; i < min(from+share, n); i++ {
				do(i)
			}
		})
	}
	for i := range min(share, n) {
		do(i)
	}
	others.Wait()
}
