//go:build linux

package isolate

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/errs"
)

// TestNoTerminalOfTheHostIsHandedOver: a process could read what is typed there for as long as the
// container lives.
func TestNoTerminalOfTheHostIsHandedOver(t *testing.T) {
	tty, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer tty.Close()
	c := Command{Args: []string{"true"}, Dir: "/"}
	if err := c.check(Spec{IDs: Same}); err != nil {
		t.Fatal(err)
	}
	for _, stream := range []**os.File{&c.Stdin, &c.Stdout, &c.Stderr} {
		*stream = tty
		if err := c.check(Spec{IDs: Same}); !errors.Is(err, errs.ErrInvalid) || !strings.Contains(err.Error(), "terminal of the host") {
			t.Errorf("a terminal as a stream: %v", err)
		}
		*stream = nil
	}
}
