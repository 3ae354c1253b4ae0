// Package catalog stores the names, parents and states of all sandboxes, for every backend, in small readable
// files of the state directory DIR:
//
//	DIR/format                     the version of everything below
//	DIR/sandboxes/NAME/record.json one sandbox ([Record]); its directory is the claim on its name
//	DIR/sandboxes/NAME/record.copy its copy, for a repair, which moves the damaged file to record.damaged
//	DIR/sandboxes/NAME/tmp/        /tmp of the sandbox
//	DIR/sandboxes/NAME/numbers     reserved numbers of snapshots, which hold until the next boot
//	DIR/sandboxes/NAME/view        the socket of the process that shows the sandbox at a directory of the host
//	DIR/sandboxes/NAME/view.lock   the lock of a program that opens or closes this view
//	DIR/active/PID.START.SERIAL.WHAT.ID.NAME   an operation in progress ([Intent])
//	DIR/ends/WALL.BOOT.UP.ID.NAME  when a sandbox will be removed ([End])
//	DIR/spare/N/                   the directory of a removed sandbox, for reuse
//	DIR/spare/ID/                  the directory of a new sandbox until it claims its name
//	DIR/places/DRIVER:PATH         a filesystem on which a backend has data of its own
//	DIR/pipelines/ID/state.json    a promotion through stages ([Catalog.Store]; see the engine)
//	DIR/previews/HASH              the text of a command's preview, for five minutes (see package agenthook)
//	DIR/images/                    a cache of what hides names in containers ([Catalog.Images])
//	DIR/listing                    a cache of all records, for lists ([Catalog.ReadCached])
//	DIR/trash/NAME.ID/             a removed sandbox whose trees are not removed yet
//
// Any number of processes may use one catalogue. A sandbox's name is claimed and given up by renaming a
// directory together with its record. This needs no lock, and no name is ever without a record. A process
// that changes a sandbox holds the sandbox's lock ([Locked]). A record is replaced by a rename, so a reader
// sees the old or the new one.
//
// A process killed at any instant leaves its entry under active. The next command finds the entry with one
// readdir ([Catalog.Stale]) and repairs the sandbox. The entry contains the sandbox's ID, because another
// sandbox may have the name by then. After a power loss, each durably saved record or its predecessor exists.
//
// A method that writes is durable: when it returns, a power loss cannot take the new content back. One whose name ends
// in Ordered waits only for the content, and not for the journal of the file system: a power loss within the next
// seconds may leave the old content, all of it.
//
// # Where to start
//
// [Catalog] and [Record], then [Locked], the record under its lock, and [Intent], which makes interrupted
// operations visible.
//
// The package must not know backends, containers or supervisors: it stores what others decide.
package catalog
