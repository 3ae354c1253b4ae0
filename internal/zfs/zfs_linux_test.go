package zfs_test

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/internal/zfs"
)

// What nvlist_pack makes of them on a machine with the low byte first: module/nvpair/nvpair.c of OpenZFS 2.1.
func TestPairsArePackedAsZFSPacksThem(t *testing.T) {
	want, err := hex.DecodeString(strings.Join(strings.Fields(`
		00010000 00000000 01000000
		30000000 0600 0000 01000000 13000000  736e61707300 0000  00000000 01000000 00000000 00000000 00000000 00000000
		  18000000 0600 0000 00000000 01000000  7440787879 00 0000
		  00000000
		20000000 0200 0000 01000000 08000000  6e00 000000000000  0700000000000000
		20000000 0200 0000 01000000 09000000  7300 000000000000  6162000000000000
		00000000`), ""))
	if err != nil {
		t.Fatal(err)
	}
	got := zfs.Pairs(
		zfs.Pair{Name: "snaps", Value: []zfs.Pair{{Name: "t@xxy"}}},
		zfs.Pair{Name: "n", Value: uint64(7)}, zfs.Pair{Name: "s", Value: "ab"},
	)
	if !bytes.Equal(got, want) {
		t.Errorf("packed\n%x\nwant\n%x", got, want)
	}
	if !zfs.NoZFSPairs(zfs.Pairs()) || zfs.NoZFSPairs(got) {
		t.Error("what is empty and what is not is not told")
	}
}

func TestANumberIsFoundInAReply(t *testing.T) {
	reply := zfs.Pairs(
		zfs.Pair{Name: "used", Value: "text"}, zfs.Pair{Name: "list", Value: []zfs.Pair{{Name: "used", Value: uint64(1)}}},
		zfs.Pair{Name: "use", Value: uint64(2)}, zfs.Pair{Name: "used", Value: uint64(1) << 40}, zfs.Pair{Name: "uncompressed", Value: uint64(7)},
	)
	for name, want := range map[string]uint64{"used": 1 << 40, "use": 2, "uncompressed": 7} {
		if n, ok := zfs.Number(reply, name); n != want || !ok {
			t.Errorf("%s is %d, %t, want %d", name, n, ok, want)
		}
	}
	for cut := range reply {
		if n, ok := zfs.Number(reply[:cut], "uncompressed"); ok && n != 7 {
			t.Errorf("in the first %d bytes, the number is %d", cut, n)
		}
	}
	if n, ok := zfs.Number(reply, "compressed"); ok {
		t.Errorf("a number that is missing is %d", n)
	}
	if n, ok := zfs.Number(nil, "used"); ok {
		t.Errorf("in no reply, the number is %d", n)
	}
}
