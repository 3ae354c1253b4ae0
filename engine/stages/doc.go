// Package stages stores promotions through stages, such as test, staging and production: the progress of
// each, who approved it, and which of its promotions were undone later. Package workflow/pipeline executes
// them.
//
// Read [Pipeline] first, then [Store].
package stages
