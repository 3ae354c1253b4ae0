// Package mount makes mounts by descriptor (fsopen, fsmount, open_tree, move_mount) and reads what is
// mounted. Mounts are detached until the caller attaches them, so a failure leaves nothing behind.
package mount
