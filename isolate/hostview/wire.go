package hostview

// The descriptor numbers under which the process that serves a view, a container's directory on the host,
// gets its files from [Start].
const (
	ReadyFD = 3 // a pipe: the process writes "ready" or an error to it
	TreeFD  = 4 // the directory
	EndedFD = 5 // a pipe that closes when the container has ended
	HoldFD  = 6 // a pipe that the container's process reads until it closes
	OwnerFD = 7 // a pidfd of the process for which the view exists, or /dev/null
)

// Ready is the text that the process that serves a view writes to ReadyFD when the view is mounted.
const Ready = "ready"

// A Request is a message of a [Conn] to the process that serves a view, a container's directory on the host.
// Exactly one of its fields is set.
type Request struct {
	// Leave requests that the process close everything of the container, so that it can end. The mount stays.
	Leave bool `json:"leave,omitempty"`
	// Enter requests another directory in place of the one that was left. The message carries the descriptors of
	// TreeFD, EndedFD and HoldFD.
	Enter *Enter `json:"enter,omitempty"`
	// End requests that the process unmount the view and end.
	End bool `json:"end,omitempty"`
}

// An Enter is the part of a [Request] that says how the view shows the container's directory that it enters.
type Enter struct {
	// Base is the first of the container's ids, which the view shows as 0; or 0 for ids that stay.
	Base uint32 `json:"base"`
}

// A Reply is the answer of the process that serves a view, a container's directory on the host, to a
// [Request]: Error is empty after success.
type Reply struct {
	Error string `json:"error,omitempty"`
}
