// Package pipeline promotes a sandbox through the stages of a profile, such as test, staging and production.
// Each stage has checks before and after, an approval, and a target; a stage that fails is undone alone.
//
// Read [Runner.PromoteStages] first. Package stages stores the progress on disk, so that a killed pipeline
// can be continued.
package pipeline
