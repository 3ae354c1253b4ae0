// Package evidence keeps a signed log of everything done with those sandboxes whose policy asks for it. It is
// a client of the engine: the engine announces each operation to its [Store], before the operation where that
// can be refused, and the store writes an entry in the form of package audit.
//
// Each sandbox has a directory evidence/ID in the state directory, which stays when the sandbox is removed.
// The host's signing key is beside these directories, and so outside every sandbox. [RecordChanges] records
// the changed files, [End] signs the end statement, and [Store.Export] returns the bundle with which others
// can verify the log.
package evidence
