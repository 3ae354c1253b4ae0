package supervise

import (
	"context"
	"os"

	"github.com/snapfs/snapfs/engine/admission"
	"github.com/snapfs/snapfs/engine/baseline"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/compare"
	"github.com/snapfs/snapfs/engine/egress"
	"github.com/snapfs/snapfs/engine/events"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/keypoint"
	"github.com/snapfs/snapfs/engine/sandbox"
	"github.com/snapfs/snapfs/engine/supervise/connpool"
	"github.com/snapfs/snapfs/engine/supervise/drift"
	"github.com/snapfs/snapfs/engine/supervise/standby"
	"github.com/snapfs/snapfs/errs"
)

// A Manager starts and ends the supervisors of sandboxes, and sends them requests. It is safe for concurrent use, by
// any number of processes.
type Manager struct {
	cat       *catalog.Catalog
	notice    func(string)
	events    *events.Log
	host      *hostfs.Host
	sandboxes *sandbox.Store
	baseline  *baseline.Recorder
	drift     drift.Watcher
	egress    *egress.Gateway
	keyPoints *keypoint.Taker
	book      *admission.Controller

	program       []string
	standby       *standby.Pool  // or nil
	connections   *connpool.Pool // or nil
	probe         []string
	idMapper      func() ([]string, error)
	selfTest      SelfTest
	removeExpired func(ctx context.Context, h *catalog.Locked) error
}

// A SelfTest tests the isolation of a started sandbox by probes that run inside. program returns the executable of
// the probes, which the SelfTest closes. Errors: [ErrWall] with the failed probes, besides the returned result.
type SelfTest func(ctx context.Context, rec *catalog.Record, h *Supervisor, program func() (*os.File, error)) (*catalog.Proof, error)

// Parts are the packages and programs with which a Manager starts and controls sandboxes. See [New].
type Parts struct {
	Catalog   *catalog.Catalog
	Host      *hostfs.Host
	Sandboxes *sandbox.Store
	Baseline  *baseline.Recorder
	Compare   *compare.Comparer
	Egress    *egress.Gateway
	KeyPoints *keypoint.Taker
	Book      *admission.Controller
	Notice    func(string)
	Events    *events.Log

	// Supervisor is the command that runs a supervisor: the program and its first arguments.
	Supervisor []string
	// Standby starts supervisors instead, if it is not nil.
	Standby *standby.Pool
	// Connections holds connections to supervisors from one command to the next, if it is not nil.
	Connections *connpool.Pool
	// Probe is the program of the self-test and its first arguments.
	Probe []string
	// IDMapper returns the command that serves a tree with mapped ids.
	IDMapper func() ([]string, error)
	// SelfTest probes the isolation of a sandbox whose policy requires it.
	SelfTest SelfTest
	// RemoveExpired removes a sandbox in which nothing runs and whose remove-after time has come.
	RemoveExpired func(ctx context.Context, h *catalog.Locked) error
}

// New returns a Manager, which starts and controls sandboxes by means of these packages and programs.
func New(p Parts) *Manager {
	return &Manager{
		cat: p.Catalog, notice: p.Notice, events: p.Events, host: p.Host, sandboxes: p.Sandboxes, baseline: p.Baseline, drift: drift.Watcher{Dir: p.Catalog.Dir(), Host: p.Host, Compare: p.Compare},
		egress: p.Egress, keyPoints: p.KeyPoints, book: p.Book, program: p.Supervisor, standby: p.Standby, connections: p.Connections, probe: p.Probe, idMapper: p.IDMapper, selfTest: p.SelfTest, removeExpired: p.RemoveExpired,
	}
}

// trySelfTest tests the isolation of a started sandbox with Parts.SelfTest, by the probes of program, and
// writes an event with the result. Errors: [ErrWall], also if the Manager has no self-test.
func (sv *Manager) trySelfTest(ctx context.Context, rec *catalog.Record, h *Supervisor, program func() (*os.File, error)) (*catalog.Proof, error) {
	if sv.selfTest == nil {
		return nil, errs.New("trying the walls", rec.Name, ErrWall, "this program was opened without a self-test")
	}
	proof, err := sv.selfTest(ctx, rec, h, program)
	if proof != nil {
		sv.announceSelfTest(rec, proof)
	}
	return proof, err
}
