//go:build !linux

package nodes

import "os"

// Domain names what separates the open directory dir from others of its filesystem, so that no file can be renamed
// between them. Outside of Linux nothing is known to do so, and it returns "".
func Domain(*os.File) string { return "" }
