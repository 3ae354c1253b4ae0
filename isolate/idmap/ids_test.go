//go:build linux

package idmap

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

var by = higherBy(1 << 28)

func TestEachIDMapsToOneID(t *testing.T) {
	for _, id := range []uint32{0, 1, 1000, Size - 1} {
		if got, err := by.toDisk(by.toShown(id)); got != id || err != nil {
			t.Errorf("%d comes back as %d, %v", id, got, err)
		}
	}
	for _, id := range []uint32{Size, 1 << 28, nobody} {
		if got := by.toShown(id); got != nobody {
			t.Errorf("%d on disk is %d above", id, got)
		}
	}
	for _, id := range []uint32{0, 1000, 1<<28 - 1, 1<<28 + Size, nobody} {
		if got, err := by.toDisk(id); err != unix.EOVERFLOW {
			t.Errorf("%d above is %d on disk, %v", id, got, err)
		}
	}
}

// list returns an access control list with one user's and one group's entry.
func list(user, group uint32) []byte {
	l := binary.LittleEndian.AppendUint32(nil, 2)
	for _, e := range []struct {
		tag, perm uint16
		id        uint32
	}{{1, 6, nobody}, {2, 7, user}, {4, 5, nobody}, {8, 4, group}, {0x10, 7, nobody}, {0x20, 0, nobody}} {
		l = binary.LittleEndian.AppendUint16(l, e.tag)
		l = binary.LittleEndian.AppendUint16(l, e.perm)
		l = binary.LittleEndian.AppendUint32(l, e.id)
	}
	return l
}

func TestACLIsMapped(t *testing.T) {
	up, err := mapXattr(aclAccess, list(7, 8), by.toShownStrict)
	if err != nil || !bytes.Equal(up, list(1<<28+7, 1<<28+8)) {
		t.Errorf("%x, %v", up, err)
	}
	down, err := mapXattr(aclDefault, up, by.toDisk)
	if err != nil || !bytes.Equal(down, list(7, 8)) {
		t.Errorf("%x, %v", down, err)
	}
	if _, err := mapXattr(aclAccess, list(7, Size), by.toShownStrict); err != unix.EOVERFLOW {
		t.Error("a stranger's entry is shown:", err)
	}
	if _, err := mapXattr(aclAccess, list(7, 8), by.toDisk); err != unix.EOVERFLOW {
		t.Error("an entry of the host's user is written:", err)
	}
	if _, err := mapXattr(aclAccess, list(7, 8)[:9], by.toDisk); err != unix.EINVAL {
		t.Error("half an entry is taken:", err)
	}
	if got, err := mapXattr("user.x", []byte("any"), by.toDisk); string(got) != "any" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

// TestCapabilitiesNeverBecomeTheHosts: those that the mapped root sets are its own.
func TestCapabilitiesNeverBecomeTheHosts(t *testing.T) {
	caps := func(revision uint32, root ...uint32) []byte {
		v := binary.LittleEndian.AppendUint32(nil, revision|1)
		v = append(v, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16)
		for _, r := range root {
			v = binary.LittleEndian.AppendUint32(v, r)
		}
		return v
	}
	for _, c := range []struct{ disk, above []byte }{
		{caps(capRevision2), caps(capRevision3, 1<<28)},
		{caps(capRevision3, 7), caps(capRevision3, 1<<28+7)},
	} {
		up, err := by.capsToShown(c.disk)
		if err != nil || !bytes.Equal(up, c.above) {
			t.Errorf("%x is shown as %x, %v", c.disk, up, err)
		}
		down, err := by.capsToDisk(c.above)
		if err != nil || !bytes.Equal(down, c.disk) {
			t.Errorf("%x is written as %x, %v", c.above, down, err)
		}
	}
	for _, v := range [][]byte{caps(capRevision2), caps(capRevision3, 0), caps(capRevision3, 1<<28+Size), nil} {
		if got, err := by.capsToDisk(v); !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EOVERFLOW) {
			t.Errorf("%x is written as %x, %v", v, got, err)
		}
	}
	if _, err := by.capsToShown(caps(capRevision3, Size)); err != unix.EOVERFLOW {
		t.Error("a stranger's root is shown:", err)
	}
}
