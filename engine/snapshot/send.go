package snapshot

import (
	"context"
	"io"
)

// A Form names the format of a stream that a [Sender] writes. Streams of one form have one reader, whichever
// backend wrote them.
type Form string

// FormCommands is the stream format that every snapfs can read into any backend: the commands of package
// internal/sendstream.
const FormCommands Form = "commands-1"

// A Sending selects the content of a stream that a [Sender] writes: a whole snapshot, or only its differences
// from another.
type Sending struct {
	ID ID
	// Base is a snapshot that the other side has too; the stream then holds the differences only.
	// "": the stream holds the whole tree.
	Base ID
}

// A Sender is a backend that writes its snapshots as streams, to be sent to another machine, faster than a
// walk of the tree could.
type Sender interface {
	// SendForm returns the name of the format of the streams that Send writes, which the receiver must be
	// able to read. It costs nothing.
	SendForm() Form
	// Send writes the tree of the snapshot s.ID, or its differences from s.Base, to w as a stream. It changes
	// nothing and may be repeated. Two streams of one snapshot make the same tree, though they may have
	// different bytes.
	//
	// Removing the snapshot meanwhile, or ending ctx, breaks the stream off. Cost: in proportion to the tree,
	// or to its differences from the base.
	//
	// Errors: errs.ErrNotFound; errs.ErrNotSupported, before anything is written (this process may not send,
	// the tree cannot be sent exactly, or base and snapshot have no common origin; the caller then walks the
	// tree); errs.ErrInterrupted; and the errors of w unchanged.
	Send(ctx context.Context, w io.Writer, s Sending) error
}
