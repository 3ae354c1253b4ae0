// Package pipeline promotes a sandbox through the stages of a profile, such as test, staging and production.
// Each stage has checks before and after, an approval, and a target directory. If a stage fails, only that
// stage is undone.
//
// Read [Runner.PromoteStages] first. Package stages stores the progress on disk, so that a killed promotion
// can be continued.
package pipeline
