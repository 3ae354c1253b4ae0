// Package cmdbroker executes guarded programs on behalf of the processes of one sandbox, if a rule of its profile allows
// the first arguments ([catalog.Tools.Allow]). A guarded program is one that no process of the sandbox can execute by
// itself ([isolate.Spec.Guarded]).
//
// A process that executes such a program runs a stub (package isolate/stub), which connects to the [Broker] in the
// sandbox's supervisor. The Broker reads which arguments the stub has, compares these with the rules, and has the
// container's pid 1 execute the program with the same: the program gets the arguments that were read, whatever any
// process changes later. Of the environment the program gets variables that the sandbox's command was given from outside,
// and from the caller only those that say how to write to a person.
package cmdbroker
