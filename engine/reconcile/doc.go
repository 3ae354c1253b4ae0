// Package reconcile is the only code that changes the real tree: it plans,
// merges, promotes, applies, refreshes and undoes.
//
// Read [Plan] first, which is what a promotion would do, then
// [Reconciler.Promote] and [Reconciler.Refresh]. A promotion is journalled by
// package promote: a crash at any instant leaves the old state, the new state, or
// one that [Reconciler.RecoverPromotions] completes or takes back.
package reconcile
