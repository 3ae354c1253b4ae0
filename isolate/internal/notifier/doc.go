// Package notifier observes system calls by which the processes of a container open or look up a file, read, write or
// move one, or execute a program. A seccomp filter stops each such call until [Serve], in the supervisor, has read its
// path and let it continue (seccomp_unotify(2)), or has let it fail because the observation could not be recorded.
// Between the observation and the call a process may change the path in its memory, so that an observation is a report
// and no wall.
//
// Each observation costs two switches between processes. The kernel has no cheaper report of what Landlock refuses: its
// audit records (Linux 6.15) are for root only, and only while auditing is on.
package notifier
