//go:build linux

package edge

import (
	"os"
	"testing"

	"github.com/snapfs/snapfs/internal/treetest"
)

// TestOrdinaryUserCanRunAProxy: nothing needs root if the user may open the device.
func TestOrdinaryUserCanRunAProxy(t *testing.T) {
	if os.Geteuid() == 0 {
		treetest.RunAs(t, treetest.User(t), t.Name(), treetest.WithTUN())
		return
	}
	w := newWorld(t, "site.example")
	w.name("site.example", "203.0.113.10")
	w.serve(t, "203.0.113.10:7", echo)
	r := w.play(t, step{Dial: "tcp6 site.example:7"}, step{Send: []byte("\x00hello")}, step{Close: true}, step{Read: -1})
	if r.Err != "" || string(r.Read) != "\x00hello" {
		t.Errorf("%q, %s", r.Read, r.Err)
	}
}
