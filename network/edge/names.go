//go:build linux

package edge

import (
	"container/list"
	"net/netip"
	"sync"

	"github.com/snapfs/snapfs/network"
)

// A names maps each host name that the sandbox has resolved to the pair of addresses that stand for it. When
// the table is full, the least recently used name loses its pair. An open connection keeps its name.
type names struct {
	mu     sync.Mutex
	max    int // network.MaxNames, except in tests
	byName map[string]*list.Element
	byNum  map[int]*list.Element
	used   *list.List // most recently used first
	last   int        // the last number given
}

type named struct {
	name string
	num  int
}

// addrs returns the addresses that stand inside the sandbox for the host name, and assigns them if it has
// none.
func (t *names) addrs(name string) (four, six netip.Addr) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.make()
	el := t.byName[name]
	if el == nil {
		el = t.add(name)
	}
	t.used.MoveToFront(el)
	n, _ := el.Value.(*named)
	return network.NameAddrs(n.num)
}

// make creates the maps of the table of host names at its first use. The caller holds t.mu.
func (t *names) make() {
	if t.used == nil {
		t.used, t.byName, t.byNum = list.New(), map[string]*list.Element{}, map[int]*list.Element{}
		if t.max == 0 {
			t.max = network.MaxNames
		}
	}
}

// restore adds the host names of an earlier proxy of the sandbox, each with the number of its addresses. New
// names get numbers after last, so that an address that a process has cached never leads to another name.
func (t *names) restore(numbers map[string]int, last int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.make()
	for name, num := range numbers {
		if num < 1 || num > t.max || t.byNum[num] != nil || t.byName[name] != nil {
			continue
		}
		el := t.used.PushFront(&named{name, num})
		t.byName[name], t.byNum[num] = el, el
		last = max(last, num)
	}
	if t.last = last; last >= t.max && t.used.Len() == 0 {
		t.last = 0
	}
}

// add gives the host name, which has no addresses yet, a new number. If none is left, it gets that of the
// least recently used name, which is removed. The caller holds t.mu.
func (t *names) add(name string) *list.Element {
	n := &named{name, t.last + 1}
	if t.last < t.max {
		t.last++
	} else {
		last := t.used.Back()
		old, _ := t.used.Remove(last).(*named)
		delete(t.byName, old.name)
		n.num = old.num
	}
	el := t.used.PushFront(n)
	t.byName[name], t.byNum[n.num] = el, el
	return el
}

// name returns the host name whose addresses inside the sandbox have the number num, or "".
func (t *names) name(num int) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	el := t.byNum[num]
	if el == nil {
		return ""
	}
	t.used.MoveToFront(el)
	n, _ := el.Value.(*named)
	return n.name
}
