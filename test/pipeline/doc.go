// Package pipeline tests the profile of examples/pipeline, a promotion through five stages, as root and as an
// ordinary user. The promotion runs once without failure, once with a failure before and after each stage,
// and once with a kill before and after each. The package has tests only.
package pipeline
