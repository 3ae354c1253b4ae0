// Package run starts other programs: no other package may import os/exec. A missing or failing program is a
// typed error with a hint.
//
// Read [Program] and [Run] first. [Output] collects the output, [Group] also ends descendants, [Background]
// leaves a program running, and [Timed] measures one. The package must not know anything about particular
// programs.
package run
