// Package pipeline promotes a sandbox through the stages of a profile: each has
// checks before and after, an approval, and a target; a stage that fails is taken
// back alone.
//
// Read [Runner.PromoteStages] first. Package stages keeps the records, so that a
// killed pipeline can be continued.
package pipeline
