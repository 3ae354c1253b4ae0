// Package events stores what happens in a state directory as one numbered stream: sandboxes made and removed,
// commands started and ended, snapshots, promotions, network decisions.
//
// Every process that acts appends to the stream before it reports its result, so no daemon is needed.
// [Log.Append] writes an event, [Read] returns the stored ones after a number, and [Follow] goes on with
// those that come. An event is a CloudEvents 1.0 object in JSON (https://github.com/cloudevents/spec), one a
// line. The files have a bounded size; the oldest are removed.
//
// The package knows no sandbox and no engine: their packages fill in the events.
package events
