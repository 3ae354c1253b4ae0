// Package suites runs the tests of other projects, unmodified, in sandboxes and on the bare disk beside them, and
// compares the results test by test: pjdfstest, the tests of Go's and of Python's standard library that use files
// and processes, and the stressors of stress-ng. It has tests only.
//
// The file testdata/differences.txt lists each test that ends differently in a sandbox, with its reason. A
// difference that is not listed fails, and so does a listed one that is none any more. `make suites` runs all of
// this, and `make suites-some` a part that a seed selects, for a bounded time.
package suites
