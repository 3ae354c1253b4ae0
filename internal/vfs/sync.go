package vfs

import "os"

// SyncDir writes the entries of the directory at path to disk, so that names made or removed in it before
// survive a power cut.
func SyncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// SyncFSOf writes all buffered data of the filesystem that holds the directory path to disk, and waits for
// that (not on macOS).
func SyncFSOf(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	return SyncFS(int(d.Fd()))
}
