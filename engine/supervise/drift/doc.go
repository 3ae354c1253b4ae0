// Package drift watches the real workspace of a sandbox while the sandbox runs, and reports how far it has drifted from
// the sandbox's base.
//
// A [Watcher] calls a function with each new report, until it is stopped. A [Feed] is such a watch of one running
// sandbox: it passes each report on and stores the last one. The package knows neither processes nor clients, and
// compares no files itself: package compare does.
package drift
