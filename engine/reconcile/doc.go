// Package reconcile alone changes the real tree: it plans, merges, promotes, applies, refreshes and undoes.
//
// Read [Plan] first, the result of planning, then [Reconciler.Promote] and [Reconciler.Refresh]. Package promote
// journals every promotion: a crash at any instant leaves the old state, the new state, or one that
// [Reconciler.RecoverPromotions] completes or reverts. The package must not know how a sandbox runs or how
// its tree is stored: it freezes it through package supervise and reads it through package compare.
package reconcile
