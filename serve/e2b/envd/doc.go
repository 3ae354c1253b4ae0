// Package envd holds the messages and services of the protocol that E2B's clients speak with a sandbox, generated from
// the files in proto. It has no code of its own.
package envd

//go:generate go tool -modfile=../../../internal/tools/proto/go.mod buf generate
