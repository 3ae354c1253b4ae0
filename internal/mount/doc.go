// Package mount makes mounts by descriptor (fsopen, fsmount, open_tree, move_mount) and reads which mounts
// exist. A new mount is detached until the caller attaches it, so a failure leaves nothing behind.
package mount
