package supervise

import (
	"errors"
	"syscall"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/compare"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/isolate"
)

// A Request is a client's JSON message to a supervisor. Exactly one field is set, or Signal and Group.
type Request struct {
	Exec   *execRequest   `json:"exec,omitempty"`
	Signal syscall.Signal `json:"signal,omitempty"`
	// Group sends Signal to the command's process group; an older supervisor sends it to the command only.
	Group  bool `json:"group,omitempty"`
	Freeze bool `json:"freeze,omitempty"`
	// Checkpoint requests the named snapshot of this name. The client's lock of the sandbox comes with the request. The
	// supervisor replies when the sandbox is frozen, and takes the snapshot afterwards.
	Checkpoint string `json:"checkpoint,omitempty"`
	Stop       bool   `json:"stop,omitempty"`
	// Leave requests the end of the sandbox if nothing runs in it.
	Leave bool `json:"leave,omitempty"`
	// Drift requests a reply with each new drift report, until the client closes the connection.
	Drift bool `json:"drift,omitempty"`
	// Limits are the new limits of the sandbox.
	Limits *catalog.Limits `json:"limits,omitempty"`
	// ResumeSpent requests that a sandbox that was paused because its budget was spent resumes.
	ResumeSpent bool `json:"resume_spent,omitempty"`
	// Network are the new network rules of the sandbox.
	Network string `json:"network,omitempty"`
	// Usage requests the resource usage.
	Usage bool         `json:"usage,omitempty"`
	Port  *portRequest `json:"port,omitempty"`
}

// A Reply is a supervisor's reply to a Request, as JSON: which fields are set depends on the request.
type Reply struct {
	Started bool `json:"started,omitempty"`
	// Detached is the ID of a detached command.
	Detached int  `json:"detached,omitempty"`
	Frozen   bool `json:"frozen,omitempty"`
	// Slow is set if the supervisor takes no checkpoint, because the last one of a sandbox in use took long.
	Slow bool `json:"slow,omitempty"`
	// Shifted lists the frozen trees that an id mapper serves, see [isolate.Level].
	Shifted []string `json:"shifted,omitempty"`
	Ended   bool     `json:"ended,omitempty"`
	// Gone is set if the container has ended and can start no more commands.
	Gone bool `json:"gone,omitempty"`
	// Stopped is set if the sandbox was stopped after the command had been requested.
	Stopped bool            `json:"stopped,omitempty"`
	Status  *isolate.Status `json:"status,omitempty"`
	// Hit is the limit that ended the command or that the command reached.
	Hit *catalog.LimitHit `json:"hit,omitempty"`
	// Paused is the limit for which the container is paused, or nil.
	Paused *catalog.LimitHit `json:"paused,omitempty"`
	// Resumed is set if the supervisor has resumed the sandbox, which was paused because its budget was spent.
	Resumed bool `json:"resumed,omitempty"`
	// Note is a notice for the user.
	Note  string               `json:"note,omitempty"`
	Usage *Usage               `json:"usage,omitempty"`
	Drift *compare.DriftReport `json:"drift,omitempty"`
	Ports *[]Port              `json:"ports,omitempty"`
	// Proof is the result of the self-test, if the client requested one.
	Proof *catalog.Proof `json:"proof,omitempty"`
	// Refused is the error if the supervisor did not carry out the request, or nil.
	Refused *refusal `json:"refused,omitempty"`
	// Errno is the error of a command that could not be executed.
	Errno syscall.Errno `json:"errno,omitempty"`
}

// refusal returns the error by which the supervisor refused a request. A reply without an error comes from a
// supervisor of another version of snapfs, which does not know the request.
func (t *Reply) refusal() error {
	if t.Refused == nil {
		return &errs.Error{Op: "sending a request", Component: "supervisor", Kind: errs.ErrNotSupported, Err: errors.New("unknown request (running an older snapfs?)")}
	}
	return t.Refused.err()
}

// An execRequest is a client's request to run a command: an isolate.Command without its standard streams. These
// travel beside the message as descriptors, in the order of Streams, which holds their numbers.
type execRequest struct {
	Args    []string      `json:"args"`
	Env     []string      `json:"env"`
	Dir     string        `json:"dir"`
	TTY     *isolate.Size `json:"tty,omitempty"`
	Streams []int         `json:"streams"`
	// Detach lets the command outlive the client, with its output in the logs.
	Detach bool `json:"detach,omitempty"`
	// Prove runs the self-test before the command.
	Prove bool `json:"prove,omitempty"`
	// EndAtTTL ends the command at the sandbox's ttl, where it would be paused.
	EndAtTTL bool `json:"end_at_ttl,omitempty"`
	// Again leaves the connection open after the command's status, for the client's next command. An older
	// supervisor closes it.
	Again bool `json:"again,omitempty"`
	// Stops is the sandbox's stop count when the command was requested. The supervisor rejects the
	// command if the count has grown since.
	Stops *int64 `json:"stops,omitempty"`
}
