package main

import "runtime/debug"

// freeLittle makes the process free memory seldom. It is for a command that reads many records and then ends, before it
// would gain by freeing their memory.
func freeLittle() { debug.SetGCPercent(400) }
