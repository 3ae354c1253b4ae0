//go:build linux

package edge

import (
	"container/list"
	"net/netip"
	"sync"

	"github.com/snapfs/snapfs/network"
)

// names gives each name that is asked for a pair of addresses, for as long as the table has room; then the
// one that was not used for longest gives up its pair. A connection that is open keeps its name.
type names struct {
	mu     sync.Mutex
	most   int // network.MostNames, but for tests
	byName map[string]*list.Element
	byNum  map[int]*list.Element
	used   *list.List // the last used in front
	last   int        // number that was given
}

type named struct {
	name string
	num  int
}

// addrs is the pair that stands for name.
func (t *names) addrs(name string) (four, six netip.Addr) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.make()
	el := t.byName[name]
	if el == nil {
		el = t.give(name)
	}
	t.used.MoveToFront(el)
	n, _ := el.Value.(*named)
	return network.NameAddrs(n.num)
}

// make is called with mu held.
func (t *names) make() {
	if t.used == nil {
		t.used, t.byName, t.byNum = list.New(), map[string]*list.Element{}, map[int]*list.Element{}
		if t.most == 0 {
			t.most = network.MostNames
		}
	}
}

// restore has names stand where an edge before this one put them, and those that come after the
// last number that was given: what a process remembers never leads to another name.
func (t *names) restore(numbers map[string]int, last int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.make()
	for name, num := range numbers {
		if num < 1 || num > t.most || t.byNum[num] != nil || t.byName[name] != nil {
			continue
		}
		el := t.used.PushFront(&named{name, num})
		t.byName[name], t.byNum[num] = el, el
		last = max(last, num)
	}
	if t.last = last; last >= t.most && t.used.Len() == 0 {
		t.last = 0
	}
}

// give is called with mu held.
func (t *names) give(name string) *list.Element {
	n := &named{name, t.last + 1}
	if t.last < t.most {
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

// name is what num stands for, or "".
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
