// Package stages records promotions through stages: which stage each has reached,
// who approved it, and which promotions were undone since. Package
// workflow/pipeline runs them.
//
// Read [Pipeline] first, then [Store].
package stages
