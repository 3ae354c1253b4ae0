// Package stages records promotions through stages: the progress of each, who
// approved it, and which of its promotions were undone later. Package
// workflow/pipeline executes them.
//
// Read [Pipeline] first, then [Store].
package stages
