// Package pipeline runs the profile of examples/pipeline, a change's way through
// five stages, as root and as an ordinary user: once green, once failing before and
// after each stage, and once killed before and after each. It has tests only.
package pipeline
