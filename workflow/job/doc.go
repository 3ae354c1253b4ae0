// Package job carries out commands that nobody waits for: each in a sandbox, checked, and promoted at once or
// after a person's approval.
//
// Read [Job] first, then [Store.Submit], [Worker.Work] and [Store.Approve]. A job is a directory of the state
// directory, so no daemon is needed to submit or to approve one, and a killed worker loses none: the next
// worker finds the job and continues. A [Trigger] submits jobs automatically; workers check triggers too. A
// job is promoted once, because a promotion of a sandbox whose changes are already in the real tree has
// nothing to do.
package job
