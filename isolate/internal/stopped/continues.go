//go:build linux

package stopped

import (
	"sync"
	"syscall"
)

// A Continues keeps back each SIGCONT that callers send to processes of a container while that is frozen by signals,
// until the thaw: a process that it let run would be stopped again, or killed, and one that was stopped before the
// freeze would stay so.
type Continues struct {
	mu   sync.Mutex
	kept map[Receiver]bool // the receivers whose SIGCONT waits; nil while none does
}

// A Receiver gets a SIGCONT: a process, or the group that it leads. It is comparable.
type Receiver interface {
	SendNow(syscall.Signal) error
}

// Send sends sig, or keeps a SIGCONT back. Errors: those of the receiver.
func (k *Continues) Send(sig syscall.Signal, to Receiver) error {
	if sig != syscall.SIGCONT {
		return to.SendNow(sig)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.kept != nil {
		k.kept[to] = true
		return nil
	}
	return to.SendNow(sig)
}

// Keep makes each SIGCONT wait from now on. One that Send has sent before has arrived.
func (k *Continues) Keep() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.kept = map[Receiver]bool{}
}

// Deliver sends each SIGCONT that waits, and lets Send send at once again.
func (k *Continues) Deliver() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for to := range k.kept {
		_ = to.SendNow(syscall.SIGCONT) // it may have ended
	}
	k.kept = nil
}
