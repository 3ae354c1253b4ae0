package vfs

import (
	"runtime"
	"sync"
)

// minShare is the least number of calls that [Each] gives to a goroutine. Below that, starting a goroutine
// costs more than it saves.
const minShare = 64

// Each calls do(i) for each i from 0 to n-1, on all processors at once, and returns when all calls have
// returned. It is for work that takes microseconds an item, such as reading many small files.
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
