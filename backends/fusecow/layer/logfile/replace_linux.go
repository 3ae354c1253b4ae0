package logfile

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// Replace atomically replaces the log by one with a single frame of these records, and locks the new file. A
// kill leaves the old or the new log, whole, and maybe a partial log.new. The new directory entry reaches
// stable storage before anything appended later counts as synced.
func (d *Layer) Replace(records []byte) (err error) {
	log, err := os.OpenFile(d.Path+"/log.new", os.O_RDWR|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	next := append([]byte(Magic), encodeFrame(records)...)
	if err = unix.Flock(int(log.Fd()), unix.LOCK_EX|unix.LOCK_NB); err == nil {
		_, err = log.Write(next)
	}
	if err == nil {
		err = log.Sync()
	}
	if err == nil {
		err = os.Rename(d.Path+"/log.new", d.Path+"/log")
	}
	if err != nil {
		return errors.Join(err, log.Close(), d.RemoveTemp())
	}
	old := d.Log
	d.Log, d.Size, d.synced, d.renamed = log, int64(len(next)), int64(len(next)), true
	return errors.Join(old.Close(), d.syncDir())
}

// syncDir puts the directory entry of the log on stable storage, so that after a power cut the name leads to
// the new log.
func (d *Layer) syncDir() error {
	if !d.renamed {
		return nil
	}
	err := unix.Fsync(d.FD)
	if err == nil {
		d.renamed = false
	}
	return err
}

// RemoveTemp removes log.new, the unfinished new log that a process left if it was killed in [Layer.Replace].
func (d *Layer) RemoveTemp() error {
	if err := os.Remove(d.Path + "/log.new"); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// lockLog opens with the flags of open(2), and locks, the log of the layer at path; the caller closes it. If
// [Layer.Replace] has replaced the file meanwhile, it opens the new one. unix.EBUSY: another process has the
// lock.
func lockLog(path string, flags int) (*os.File, error) {
	for {
		log, err := os.OpenFile(path+"/log", flags|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, err
		}
		if err := unix.Flock(int(log.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			log.Close()
			if err == unix.EWOULDBLOCK {
				err = unix.EBUSY
			}
			return nil, &os.PathError{Op: "flock", Path: path, Err: err}
		}
		mine, err := log.Stat()
		named, nerr := os.Lstat(path + "/log")
		if err != nil || nerr != nil {
			log.Close()
			return nil, errors.Join(err, nerr)
		}
		if os.SameFile(mine, named) {
			return log, nil
		}
		log.Close()
	}
}
