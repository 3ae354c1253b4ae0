package vfs

import "os"

// SyncDir makes the names in the directory path durable.
func SyncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// SyncFSOf writes everything buffered for the filesystem that holds the directory path.
func SyncFSOf(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	return SyncFS(int(d.Fd()))
}
