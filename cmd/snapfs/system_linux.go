package main

// self returns a path by which this program can be started again.
func self() string { return "/proc/self/exe" }
