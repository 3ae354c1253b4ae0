// Package hostfs knows the trees of this machine: which mounted filesystems a
// sandbox copies, which backend can hold each, and which paths must be hidden.
//
// Read [Request] first, which describes a wanted sandbox, then [Host], which
// chooses and opens backends, and [Host.Spec], which turns the trees of a record
// into the mounts of a container. The package knows the catalogue's records, and
// neither the processes of a sandbox nor its changes.
package hostfs
