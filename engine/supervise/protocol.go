package supervise

import (
	"errors"
	"syscall"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/compare"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/isolate"
)

// A Request is what a client wants, and a tell what it is told.
type Request struct {
	Exec   *execRequest   `json:"exec,omitempty"`
	Signal syscall.Signal `json:"signal,omitempty"`
	Freeze bool           `json:"freeze,omitempty"`
	Stop   bool           `json:"stop,omitempty"`
	// Leave ends a sandbox in which nothing runs, and no other.
	Leave bool `json:"leave,omitempty"`
	// Drift wants to be told of the real tree's until the client goes.
	Drift bool `json:"drift,omitempty"`
	// Limits are to hold from now on, and Usage is asked for.
	Limits *catalog.Limits `json:"limits,omitempty"`
	// Network is to be from now on.
	Network string       `json:"network,omitempty"`
	Usage   bool         `json:"usage,omitempty"`
	Port    *portRequest `json:"port,omitempty"`
}

type reply struct {
	Started bool `json:"started,omitempty"`
	Frozen  bool `json:"frozen,omitempty"`
	// Shifted are the trees of what is frozen that one more process shows, see [isolate.Level].
	Shifted []string `json:"shifted,omitempty"`
	Ended   bool     `json:"ended,omitempty"`
	// Gone: nothing can run here any more.
	Gone bool `json:"gone,omitempty"`
	// Stopped: the sandbox was, after the command had been asked for.
	Stopped bool            `json:"stopped,omitempty"`
	Status  *isolate.Status `json:"status,omitempty"`
	// Hit is the limit that ended the command, or that it met.
	Hit *catalog.LimitHit `json:"hit,omitempty"`
	// Paused is why the sandbox stands still now, and Note what to say of it.
	Paused *catalog.LimitHit    `json:"paused,omitempty"`
	Note   string               `json:"note,omitempty"`
	Usage  *Usage               `json:"usage,omitempty"`
	Drift  *compare.DriftReport `json:"drift,omitempty"`
	Ports  *[]Port              `json:"ports,omitempty"`
	// Proof is of the walls, where it was asked for.
	Proof *catalog.Proof `json:"proof,omitempty"`
	// Refused says why what was asked for was not done.
	Refused *refusal `json:"refused,omitempty"`
	// Errno is that of a command that could not be run.
	Errno syscall.Errno `json:"errno,omitempty"`
}

// refusal is the error that was told; a keeper that says neither what was done nor
// why not is of another version.
func (t *reply) refusal() error {
	if t.Refused == nil {
		return &errs.Error{Op: "asking the keeper", Kind: errs.ErrNotSupported, Err: errors.New("it does not know what was asked for")}
	}
	return t.Refused.err()
}

// An execRequest is an isolate.Command without its streams, which travel as
// descriptors, in the order of Streams.
type execRequest struct {
	Args    []string      `json:"args"`
	Env     []string      `json:"env"`
	Dir     string        `json:"dir"`
	TTY     *isolate.Size `json:"tty,omitempty"`
	Streams []int         `json:"streams"`
	// Prove: the walls are tried first.
	Prove bool `json:"prove,omitempty"`
	// Stops is how often the sandbox had been stopped when it was asked for: it is not to
	// begin where that is over.
	Stops *int64 `json:"stops,omitempty"`
}
