// Package ahead begins the container of a server's next sandbox before a client requests one, so that it starts sooner.
package ahead

import (
	"context"
	"errors"
	"reflect"

	"github.com/snapfs/snapfs/engine/admission"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/supervise/resources"
	"github.com/snapfs/snapfs/isolate"
	"github.com/snapfs/snapfs/limits"
)

// A Container holds the beginning of a container: its control groups and its pid 1, which need no sandbox yet. It
// belongs to a process that supervises one sandbox after another. The next sandbox gets the beginning, and starts
// sooner, if its workspace, network and limits are those of the last one; otherwise the Container ends the beginning.
// Nothing else of the last sandbox is left in it.
//
// The zero value holds nothing. A Container is not safe for concurrent use.
type Container struct {
	// next is the key of the last sandbox, and of the beginning.
	next      key
	cat       *catalog.Catalog // of the last sandbox
	resources *resources.Resources
	begun     *isolate.Prepared
	intent    *catalog.Intent // announces the control groups: if this process is killed, the next command removes them
}

// nextName stands for the name of the sandbox in the intent of a [Container], which has a new id, too.
const nextName = "next"

// A key is everything on which the beginning of a container depends.
type key struct {
	state, workspace string
	policy           catalog.Policy // only the fields that [resources.Start] and [hostfs.Confinement] read
	spec             isolate.Spec   // as hostfs.Confinement returns it
}

// keyOf returns the key of a sandbox in the state directory state.
func keyOf(state, workspace string, p catalog.Policy) key {
	p = catalog.Policy{Limits: p.Limits, BestEffort: p.BestEffort, Network: p.Network}
	return key{state, workspace, p, hostfs.Confinement(p, workspace)}
}

// Begin begins a container like that of the last sandbox. It does nothing if there was none, or if its policy limits
// processes: a timer may have to check such limits as long as the control groups exist. After an error a holds
// nothing, and the start of the next sandbox reports the cause. Cost: 2 ms.
func (a *Container) Begin(ctx context.Context) {
	k := a.next
	if a.begun != nil || a.cat == nil || hostfs.ForProcesses(k.policy.Limits) != (limits.Limits{}) {
		return
	}
	var err error
	if a.intent, err = a.cat.Begin(catalog.Supervising, nextName, catalog.NewID()); err == nil {
		a.resources, err = resources.Start(ctx, k.policy, true, nil, k.workspace, k.state)
	}
	if err == nil {
		spec := k.spec
		a.resources.Bind(&spec)
		a.begun, err = isolate.Begin(ctx, spec)
	}
	if err != nil {
		_ = a.Close() // a garbage collection removes the rest
	}
}

// Take removes the beginning of a container from a and completes it for a sandbox of the catalogue cat. p is the
// policy of the sandbox within the bounds of the site. The result owns the admission slot. Take returns nil if a holds
// nothing that fits, for example because pid 1 was killed meanwhile; the caller then still owns the slot. The next
// beginning is like that of this sandbox.
func (a *Container) Take(cat *catalog.Catalog, workspace string, p catalog.Policy, slot *admission.Slot) (*isolate.Prepared, *resources.Resources) {
	k := keyOf(cat.Dir(), workspace, p)
	a.cat = cat
	fits := reflect.DeepEqual(a.next, k)
	a.next = k
	if a.begun == nil {
		return nil, nil
	}
	begun, allowed := a.begun, a.resources
	if fits {
		a.begun = nil // Equip closes it after an error
		fits = begun.Equip() == nil
	}
	if !fits {
		_ = a.Close()
		return nil, nil
	}
	a.resources = nil
	_ = a.Close() // the sandbox has an intent of its own
	allowed.Own(slot)
	return begun, allowed
}

// Close ends the beginning that a holds, if any. It may be called again.
func (a *Container) Close() error {
	err := a.begun.Close()
	if a.resources != nil {
		err = errors.Join(err, a.resources.Close(context.Background()))
	}
	if a.intent != nil {
		err = errors.Join(err, a.intent.End())
	}
	a.begun, a.resources, a.intent = nil, nil, nil
	return err
}
