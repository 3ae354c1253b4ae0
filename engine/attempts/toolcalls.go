package attempts

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/snapfs/snapfs/engine/events"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// callsFile is the name of the file in a sandbox's directory that lists which refused calls of tools are events.
// Each line is the digest of a tool's name.
const callsFile = "refused-calls"

// ToolCalls decides which calls of tools that the policy refuses a coding agent become events: the first call of
// each tool, at most maxAttempts in all, and then one event which says that further ones are not listed. An agent
// in a loop so does not fill the event log or the evidence log. The zero value has listed none. It is safe for
// concurrent use.
type ToolCalls struct {
	mu     sync.Mutex
	listed []string // the digests of the names of the tools
}

// Refused returns the data of the event about a refused call of a tool, false if there is none to write. by is what
// refused the call, "mcp" or "hook", and entry the entry of the policy that forbids the tool.
func (c *ToolCalls) Refused(by, tool, entry string) (d events.Data, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	digest := sha256.Sum256([]byte(by + " " + tool))
	name := hex.EncodeToString(digest[:8])
	if len(c.listed) > maxAttempts || slices.Contains(c.listed, name) {
		return d, false
	}
	c.listed = append(c.listed, name)
	if len(c.listed) > maxAttempts {
		return events.Data{Name: by, Reason: "further refused calls of tools are not listed"}, true
	}
	d = events.Data{Name: by, Reason: fmt.Sprintf("tools: %s %s", by, entry)}
	d.AddPath(tool)
	return d, true
}

// RefusedCall is [ToolCalls.Refused] for the calls of an agent that works in one sandbox, whichever processes count
// them. dir is the sandbox's directory in the catalogue, where a file lists them. After an error in reading or
// writing that file, there is an event for the call. Cost: some system calls on a file of at most 2 KiB.
func RefusedCall(dir, by, tool, entry string) (d events.Data, ok bool) {
	var c ToolCalls
	f, err := os.OpenFile(filepath.Join(dir, callsFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return c.Refused(by, tool, entry)
	}
	defer vfs.Unlock(f)
	err = vfs.Flock(f, unix.LOCK_EX)
	text, rerr := io.ReadAll(io.LimitReader(f, 64<<10))
	if errors.Join(err, rerr) == nil {
		c.listed = strings.Fields(string(text))
	}
	before := len(c.listed)
	if d, ok = c.Refused(by, tool, entry); ok {
		_, _ = f.WriteString(strings.Join(c.listed[before:], "") + "\n") // else the next call is an event as well
	}
	return d, ok
}
