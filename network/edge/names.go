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
}

type named struct {
	name string
	num  int
}

// addrs is the pair that stands for name.
func (t *names) addrs(name string) (four, six netip.Addr) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.used == nil {
		t.used, t.byName, t.byNum = list.New(), map[string]*list.Element{}, map[int]*list.Element{}
		if t.most == 0 {
			t.most = network.MostNames
		}
	}
	el := t.byName[name]
	if el == nil {
		el = t.give(name)
	}
	t.used.MoveToFront(el)
	n, _ := el.Value.(*named)
	return network.NameAddrs(n.num)
}

// give is called with mu held.
func (t *names) give(name string) *list.Element {
	n := &named{name, t.used.Len() + 1}
	if t.used.Len() >= t.most {
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
