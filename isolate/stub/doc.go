// Package stub makes the program that stands at the path of a guarded program in a container (isolate.Spec.Guarded), and
// has the format of its messages.
//
// A process that executes the path runs the stub. The stub connects to a socket, at which the container's supervisor
// listens, and passes on its working directory and its three standard streams. The supervisor reads from /proc which
// arguments it has, starts the real program, and replies how the stub must end. Meanwhile the stub passes on the signals
// that it gets.
//
// The stub is a list of system calls (package launch) of a few kilobytes. It decides nothing: a process that
// connects to the socket itself gets no other answer.
package stub
