package promote

// SyncEvery makes a promotion start to write to the disk after n new versions of files instead of 2500. restore
// undoes this.
func SyncEvery(n int) (restore func()) {
	old := syncEvery
	syncEvery = n
	return func() { syncEvery = old }
}
