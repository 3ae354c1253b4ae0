// Package house holds the checks of the whole source tree that no linter makes: how big a file may be, which
// entries the root has, which words are not used. It has tests only; CONTRIBUTING.md says what they require
// and why.
package house
