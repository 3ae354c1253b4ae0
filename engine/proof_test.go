package engine_test

import (
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/prove"
	"github.com/snapfs/snapfs/engine/supervise"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/workflow/selftest"
)

// probing is this program as the one that tries walls; as "crossed" it says of a wall
// that it did not hold, which no real one does.
func probing(args []string) int {
	status := prove.Run(args[1], args[2:], os.Stdout)
	if args[0] == "crossed" {
		_, _ = os.Stdout.WriteString(`{"probe":"mount","tried":"mount","happened":"it was done","held":false}` + "\n")
	}
	return status
}

// TestWhereAWallDoesNotHoldNothingIsStarted, and where all do, the command runs as
// without.
func TestWhereAWallDoesNotHoldNothingIsStarted(t *testing.T) {
	asEach(t, func(t *testing.T, b *bench) {
		for _, as := range []string{"probe", "crossed"} {
			e, err := engine.Open(t.Context(), engine.Config{State: b.state, Drivers: drivers(), Probe: []string{"/proc/self/exe", as}, SelfTest: selftest.For})
			if err != nil {
				t.Fatal(err)
			}
			req := b.request()
			req.Policy.Prove = true
			out, in, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer out.Close()
			c := b.command("echo started")
			c.Stdout = in
			s, err := e.Run(t.Context(), req, c)
			if err == nil {
				_, err = s.Wait(t.Context())
			}
			in.Close()
			said, rerr := io.ReadAll(out)
			if rerr != nil {
				t.Fatal(rerr)
			}
			if as == "crossed" {
				if !errors.Is(err, supervise.ErrWall) || !errors.Is(errs.KindOf(err), supervise.ErrWall) || !strings.Contains(err.Error(), "mount: it was done") || len(said) > 0 {
					t.Errorf("%v, and it said %q", err, said)
				}
				continue
			}
			if err != nil || string(said) != "started\n" {
				t.Fatalf("%v, and it said %q", err, said)
			}
			if p := s.Record.Proof; p == nil || len(p.Held) < 30 || len(p.Crossed) > 0 || !slices.Contains(p.Held, "loopback") {
				t.Errorf("%+v", p)
			}
			if err := s.Discard(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}
