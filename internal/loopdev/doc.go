// Package loopdev attaches image files to loop devices (loop(4)).
package loopdev
