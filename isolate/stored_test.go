//go:build linux

package isolate

import "testing"

// TestStoredCountsWhatLiesInMemory of the container's own filesystems.
func TestStoredCountsWhatLiesInMemory(t *testing.T) {
	asBoth(t, func(t *testing.T, spec Spec) {
		container := open(t, spec)
		before, devices, err := container.Stored()
		if err != nil || before > 1<<20 || len(devices) == 0 {
			t.Fatal(before, devices, err)
		}
		sh(t, container, "for d in /tmp /dev/shm /run; do test ! -w $d || head -c 1M /dev/zero > $d/f; done")
		writable := int64(3)
		if spec.IDs != Same && sh(t, container, "test -w /run && echo y") == "" {
			writable = 2
		}
		after, _, err := container.Stored()
		if err != nil || after-before != writable*(1<<20+inodeMemory) {
			t.Errorf("%d bytes, %d before: %v", after, before, err)
		}
		must := container.Close(t.Context())
		if _, _, err := container.Stored(); must != nil || err == nil {
			t.Error("it counts in a container that has ended:", must, err)
		}
	})
}
