// Package pipeline tests the profile of examples/pipeline, a promotion through five stages, as
// root and as an ordinary user: once successful, once failing before and after each stage, and
// once killed before and after each. It has tests only.
package pipeline
