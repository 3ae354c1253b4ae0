// Package evidence keeps the evidence of those sandboxes whose policy asks for it. It is a client of
// the engine: the engine announces each act to its [Store], before the act where that can be
// refused, and the store writes a record of package audit.
//
// Each sandbox has a directory evidence/ID in the state directory, which stays when the sandbox is
// removed. The host's key is beside these directories, and so outside every sandbox. [RecordChanges]
// records the changed files, [End] signs the end statement, and [Store.Export] returns the bundle.
package evidence
