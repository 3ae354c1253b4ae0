// Package envd holds the messages and services of the protocol that E2B's clients speak with envd, E2B's
// program in each sandbox. Its code is generated from the files in proto by the program in generate, a module
// of its own.
package envd

//go:generate go -C generate run . .. github.com/snapfs/snapfs/serve/e2b/envd
