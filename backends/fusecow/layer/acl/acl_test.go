//go:build linux

package acl_test

import (
	"encoding/binary"
	"testing"

	"github.com/snapfs/snapfs/backends/fusecow/layer/acl"
)

// list encodes entries of a tag and permissions.
func list(entries ...[2]uint16) string {
	b := binary.LittleEndian.AppendUint32(nil, 2)
	for _, e := range entries {
		b = binary.LittleEndian.AppendUint16(b, e[0])
		b = binary.LittleEndian.AppendUint16(b, e[1])
		b = binary.LittleEndian.AppendUint32(b, 1<<32-1)
	}
	return string(b)
}

const owner, user, group, mask, other = 0x01, 0x02, 0x04, 0x10, 0x20

// TestModeAndListAgree: a mode stands for the minimal list, and the mask for the group of a longer one.
func TestModeAndListAgree(t *testing.T) {
	for _, c := range []struct {
		name, list string
		mode       uint32
		whole, ok  bool
		after      string // with mode 0o751
	}{
		{
			"a minimal list", list([2]uint16{owner, 6}, [2]uint16{group, 4}, [2]uint16{other, 0}), 0o640, true, true,
			list([2]uint16{owner, 7}, [2]uint16{group, 5}, [2]uint16{other, 1}),
		},
		{
			"a list with a mask", list([2]uint16{owner, 7}, [2]uint16{user, 7}, [2]uint16{group, 7}, [2]uint16{mask, 4}, [2]uint16{other, 1}), 0o741, false, true,
			list([2]uint16{owner, 7}, [2]uint16{user, 7}, [2]uint16{group, 7}, [2]uint16{mask, 5}, [2]uint16{other, 1}),
		},
		{"a truncated list", list([2]uint16{owner, 7})[:9], 0, true, false, list([2]uint16{owner, 7})[:9]},
		{"another version", "\x03\x00\x00\x00", 0, true, false, "\x03\x00\x00\x00"},
	} {
		if mode, whole, ok := acl.Mode(c.list); mode != c.mode || whole != c.whole || ok != c.ok {
			t.Errorf("%s stands for %o, whole %v, ok %v", c.name, mode, whole, ok)
		}
		if got := acl.WithMode(c.list, 0o751); got != c.after {
			t.Errorf("%s becomes %q, want %q", c.name, got, c.after)
		}
	}
}
