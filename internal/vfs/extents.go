package vfs

// An Extent is a range of a filesystem's disk that a part of a file occupies: from the byte From up to To, exclusive.
type Extent struct{ From, To uint64 }
