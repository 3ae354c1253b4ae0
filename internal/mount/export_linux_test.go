package mount

// OwnProc is ownProc, for tests that need package treetest, which imports this one.
var OwnProc = ownProc
