// Package resources enforces what the processes of one running sandbox may use: memory, processors, processes, disk
// and a command's time.
//
// A [Resources] enforces the limits of one sandbox. It holds the control groups, from package limits, and the sandbox's
// admission slot; it counts the use, stores which limit was hit, and pauses and resumes the container. It does not
// decide when a sandbox has lived or idled too long, and knows no clients: the supervisor does.
package resources
