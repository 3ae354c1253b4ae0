package zfs

import (
	"encoding/binary"
	"testing"
	"unsafe"
)

// TestTheOldCallsFindTheirArguments: the offsets are those that the C compiler gives zfs_cmd_t of OpenZFS 2.1.
func TestTheOldCallsFindTheirArguments(t *testing.T) {
	var c zfsLegacy
	for what, at := range map[string][2]uintptr{
		"zc_value":      {unsafe.Offsetof(c.value), 4144},
		"zc_cookie":     {unsafe.Offsetof(c.cookie), 12616},
		"zc_cleanup_fd": {unsafe.Offsetof(c.cleanup), 13664},
	} {
		if at[0] != at[1] {
			t.Errorf("%s is at %d, want %d", what, at[0], at[1])
		}
	}
}

func TestObjectsAreReadInAnyOrder(t *testing.T) {
	record := func(numbers ...uint64) (raw []byte) {
		for _, n := range numbers {
			raw = binary.NativeEndian.AppendUint64(raw, n)
		}
		return raw
	}
	all, err := parseZFSObjects(record(4, 96, 1<<55, 2, 64, 70, 2, 0, 31, 2, 70, 95, 4, 0, 10))
	if err != nil {
		t.Fatal(err)
	}
	for ino, want := range map[uint64]bool{0: true, 31: true, 32: false, 63: false, 64: true, 70: true, 95: true, 96: false, 1 << 40: false} {
		if all.Has(ino) != want {
			t.Errorf("%d is told to be changed: %t, of %v", ino, !want, all)
		}
	}
	for what, raw := range map[string][]byte{"cut": record(2, 0), "of no kind": record(1, 0, 5), "backwards": record(2, 5, 4)} {
		if all, err := parseZFSObjects(raw); err == nil {
			t.Errorf("%s: %v", what, all)
		}
	}
}
