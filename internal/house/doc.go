// Package house holds the checks of the checkout that no linter makes: how big
// a file may be, how the root looks, which words are not used. It has tests
// only; CONTRIBUTING.md says what they ask and why.
package house
