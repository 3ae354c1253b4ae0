// Package loopdev attaches image files to loop devices (loop(4)), so that a filesystem in an image can be
// mounted.
package loopdev
