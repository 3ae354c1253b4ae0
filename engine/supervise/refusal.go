package supervise

import (
	"errors"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/supervise/resources"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/fdsock"
	"github.com/snapfs/snapfs/isolate"
)

// ErrWall is the error kind of a failed self-test: a probe inside the sandbox could do something that the sandbox's
// policy forbids. No command was started. Its exit status is 122.
var ErrWall = errs.NewStatus(122, "a wall does not hold")

// A refusal is an error in the JSON form in which a supervisor sends it to a client, another process.
type refusal struct {
	// Message is the text of the error.
	Message string `json:"message"`
	// Kind is the text of the error's kind, or "".
	Kind  string   `json:"kind,omitempty"`
	Hints []string `json:"hints,omitempty"`
}

// refusalOf converts an error into the form in which the supervisor sends it to a client.
func refusalOf(err error) *refusal {
	r := &refusal{Message: err.Error(), Hints: errs.HintsOf(err)}
	if kind := errs.KindOf(err); kind != nil {
		r.Kind = kind.Error()
	}
	for _, kind := range []error{ErrWall, resources.ErrLimit} {
		if errors.Is(err, kind) {
			r.Kind = kind.Error()
		}
	}
	return r
}

// err converts an error that a supervisor sent back into an error of this process. Its kind is nil where the
// supervisor named none, or one that only another version of snapfs knows.
func (r *refusal) err() *errs.Error {
	kind := errs.KindNamed(r.Kind)
	for _, own := range []error{ErrWall, resources.ErrLimit} {
		if r.Kind == own.Error() {
			kind = own
		}
	}
	return &errs.Error{Kind: kind, Err: errors.New(r.Message), Hints: r.Hints}
}

// sendRefusal replies to a client that its command was not started because of err. proof is that of the command, or nil.
func sendRefusal(client *fdsock.Conn, proof *catalog.Proof, err error) {
	t := Reply{Proof: proof, Refused: refusalOf(err), Gone: errors.Is(err, errs.ErrClosed)}
	var ce *isolate.CommandError
	if errors.As(err, &ce) {
		t.Errno = ce.Errno
	}
	send(client, t)
}
