package main

import "runtime/debug"

// freeLittle makes the process free memory seldom. It is for a command that reads many records and then ends, before it
// would gain by freeing their memory.
func freeLittle() { debug.SetGCPercent(400) }

// freeLater lets the process use 8 MiB, in place of 4, before it first frees memory. It is for the start of a sandbox with
// rules, which uses almost 4 MiB, and would spend two milliseconds to free less than one of them.
func freeLater() { debug.SetGCPercent(200) }
