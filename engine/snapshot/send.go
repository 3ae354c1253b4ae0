package snapshot

import (
	"context"
	"io"
)

// A Form is the format of a stream. A reader of a form reads the streams of every backend that
// writes it.
type Form string

// FormCommands is the form that every snapfs can read into any backend: the commands of package
// internal/sendstream.
const FormCommands Form = "commands-1"

// A Sending selects what to send.
type Sending struct {
	ID ID
	// Base is a snapshot that the other side has too; the stream then holds the differences only.
	// "": the stream holds the whole tree.
	Base ID
}

// A Sender writes its snapshots as streams faster than a walk of the tree could.
type Sender interface {
	// SendForm returns the form of the streams. It costs nothing.
	SendForm() Form
	// Send writes the tree of a snapshot, all of it and nothing else, to w. It changes nothing and
	// may be repeated; two streams of one snapshot make the same tree, though not always of the same
	// bytes.
	//
	// Removing the snapshot meanwhile, or ending ctx, breaks the stream off. Cost: in proportion to
	// the tree, or to its differences from the base.
	//
	// Errors: errs.ErrNotFound; errs.ErrNotSupported, before anything is written (this process may not send,
	// the tree cannot be sent exactly, or base and snapshot have no common origin; the caller then
	// walks the tree); errs.ErrInterrupted; and the errors of w unchanged.
	Send(ctx context.Context, w io.Writer, s Sending) error
}
