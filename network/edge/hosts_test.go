//go:build linux

package edge

import (
	"testing"

	"github.com/snapfs/snapfs/network"
)

// TestHostsFileAddressIsItsName if a rule allows that name on that port.
func TestHostsFileAddressIsItsName(t *testing.T) {
	rules, err := network.Parse("db.example:5432,*.corp.example,203.0.113.9")
	if err != nil {
		t.Fatal(err)
	}
	const text = "127.0.0.1 localhost\n203.0.113.10\tother.example DB.example # x.corp.example\n#203.0.113.11 db.example\n" +
		"2001:db8::1 a.corp.example\n203.0.113.12\nnonsense db.example\n203.0.113.13 b.corp.example"
	for _, c := range []struct {
		addr string
		port uint16
		name string
	}{
		{"203.0.113.10", 5432, "db.example"},
		{"::ffff:203.0.113.10", 5432, "db.example"},
		{"203.0.113.10", 5433, ""},
		{"203.0.113.11", 5432, ""},
		{"203.0.113.12", 5432, ""},
		{"2001:db8::1", 80, "a.corp.example"},
		{"2001:db8::2", 80, ""},
		{"203.0.113.13", 80, "b.corp.example"},
		{"127.0.0.1", 5432, ""},
	} {
		if got := hostsNameIn(text, mustAddr(t, c.addr), c.port, rules); got != c.name {
			t.Errorf("%s port %d is %q, want %q", c.addr, c.port, got, c.name)
		}
	}
}
