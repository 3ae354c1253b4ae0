// The program that a sandbox builds, from a module of the real module cache.
package main

import (
	"os"

	"github.com/inconshreveable/mousetrap"
)

func main() {
	if !mousetrap.StartedByExplorer() {
		os.Stdout.WriteString("hello, " + os.Args[1] + "\n")
	}
}
