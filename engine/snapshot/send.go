package snapshot

import (
	"context"
	"io"
)

// A Form says how a stream is written: who reads one form reads it whichever
// backend wrote it.
type Form string

// FormCommands is the form that every snapfs reads, into any backend: the commands
// of package internal/sendstream. A stream of another form is read only by a
// [Receiver] of that form.
const FormCommands Form = "commands-1"

// A Sending is what is to be sent.
type Sending struct {
	ID ID
	// Base is the snapshot that the other side has too, or "": then all is sent.
	Base ID
}

// A Sender writes its snapshots as streams faster than who walks them could.
type Sender interface {
	// SendForm is the form of its streams. It costs nothing.
	SendForm() Form
	// Send writes a snapshot's tree, all of it and nothing else, to w. It changes
	// nothing, may be repeated, and two of the same are the same tree, if not the same
	// bytes. Cost: in proportion to the tree, or with a base to what lies between.
	// A snapshot removed meanwhile, or ctx at its end, breaks the stream off.
	//
	// Errors: errs.ErrNotFound; errs.ErrNotSupported, before anything is written (this process
	// may not; the tree is more or less than what can be sent; base and snapshot have
	// nothing in common: the caller then walks the tree); errs.ErrInterrupted; and those of w
	// as they are.
	Send(ctx context.Context, w io.Writer, s Sending) error
}

// A Receiver makes snapshots of streams of a form.
type Receiver interface {
	// ReceiveForm is the form it reads. It costs nothing.
	ReceiveForm() Form
	// Receive makes the snapshot id, said to be of tree, of a stream: on top of the
	// snapshot base where it is an incremental one. Who checks the stream does so in r: only when r ended with io.EOF
	// is anything a snapshot. Atomic. The stream may be anybody's: nothing is written,
	// and nothing opened, but in the new snapshot's own tree.
	//
	// After an error, or a crash, there is no snapshot id; what came is taken away by
	// Remove. Cost: in proportion to the stream. Errors: errs.ErrNotFound (base), errs.ErrExists,
	// errs.ErrCorrupt (no stream of this form, or not for this base), errs.ErrNoSpace,
	// errs.ErrDenied, errs.ErrNotSupported, errs.ErrInterrupted, and those of r as they are.
	Receive(ctx context.Context, r io.Reader, id, base ID, tree Tree) (Snapshot, error)
}
