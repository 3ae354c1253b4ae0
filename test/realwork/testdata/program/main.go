// The program that a test builds in a sandbox, with a module from the machine's real module cache.
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
